(* The definitions: total variation between rows, the Dobrushin coefficient,
   the lazy factor, self-dominant pairs, the deficit, the gap, the rollout. *)
From mathcomp Require Import all_ssreflect all_algebra.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Definitions.

Variables (R : realFieldType) (n : nat).
Implicit Types (A : 'M[R]_n) (i j k : 'I_n).

(* A is row-stochastic: entries are nonnegative and each row sums to 1. *)
Definition stochastic A : Prop :=
  (forall i k, 0 <= A i k) /\ (forall i, \sum_k A i k = 1).

(* TV_ij(A): total variation distance between rows i and j. *)
Definition tv A i j : R := (\sum_k `|A i k - A j k|) / 2%:R.

(* kappa(A): the Dobrushin coefficient, the maximum of TV_ij(A) over i and j. *)
Definition kappa A : R := \big[Num.max/0]_i \big[Num.max/0]_j tv A i j.

(* L(A) = (I + A) / 2: the lazy factor. *)
Definition lazy A : 'M[R]_n := 2%:R^-1 *: (1%:M + A).

(* The pair (i, j) is mutually self-dominant: A_ii >= A_ji and A_jj >= A_ij. *)
Definition self_dominant A i j : bool := (A j i <= A i i) && (A i j <= A j j).

(* Condition (8): a pair of distinct rows attains kappa(A) and is self-dominant. *)
Definition condition8 A : Prop :=
  exists i j, [/\ i != j, tv A i j = kappa A & self_dominant A i j].

(* delta_ij = ((A_ji - A_ii)_+ + (A_ij - A_jj)_+) / 2: the deficit of a pair. *)
Definition deficit A i j : R :=
  (Num.max 0 (A j i - A i i) + Num.max 0 (A i j - A j j)) / 2%:R.

(* The gap of the bound kappa(L(A)) <= (1 + kappa(A)) / 2. *)
Definition gap A : R := (1 + kappa A) / 2%:R - kappa (lazy A).

(* What the pair (i, j) contributes to the gap. *)
Definition pair_gap A i j : R := (kappa A - tv A i j) / 2%:R + deficit A i j.

(* rollout [:: A_1; ...; A_L] = L(A_L) ... L(A_1): the first layer acts first. *)
Definition rollout (s : seq 'M[R]_n) : 'M[R]_n :=
  foldr (fun A P => P *m lazy A) 1%:M s.

(* The smallest entry of column k (entries of a stochastic matrix are at most 1). *)
Definition column_min A k : R := \big[Num.min/1]_i A i k.

(* Self-dominance slack: min(A_ii - A_ji, A_jj - A_ij). *)
Definition slack A i j : R := Num.min (A i i - A j i) (A j j - A i j).

End Definitions.
