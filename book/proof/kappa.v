(* The Dobrushin coefficient is the largest TV_ij(A), and 0 <= kappa(A) <= 1. *)
From mathcomp Require Import all_ssreflect all_algebra.
From dobrushin_proof Require Import compat definitions.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Kappa.

Variables (R : realFieldType) (n : nat).
Implicit Types (A : 'M[R]_n) (i j k : 'I_n).

(* Entries of a stochastic matrix are nonnegative. *)
Lemma stochastic_ge0 A i k : stochastic A -> 0 <= A i k.
Proof. by case=> A0 _. Qed.

(* Entries of a stochastic matrix are at most 1. *)
Lemma stochastic_le1 A i k : stochastic A -> A i k <= 1.
Proof.
case=> A0 A1; rewrite -(A1 i) (bigD1 k) //= -subr_ge0 addrC addKr.
exact: sumr_ge0.
Qed.

(* TV_ij(A) >= 0. *)
Lemma tv_ge0 A i j : 0 <= tv A i j.
Proof. by apply: half_ge0; apply: sumr_ge0. Qed.

(* TV_ii(A) = 0. *)
Lemma tv_refl A i : tv A i i = 0.
Proof. by rewrite /tv big1 ?mul0r // => k _; rewrite subrr normr0. Qed.

(* TV_ij(A) <= 1 for stochastic A. *)
Lemma tv_le1 A i j : stochastic A -> tv A i j <= 1.
Proof.
move=> [A0 A1]; rewrite -[1]half_double le_half -{1}(A1 i) -(A1 j) -big_split /=.
apply: ler_sum => k _; rewrite ler_norml opprD.
by apply/andP; split; apply: le_add; rewrite ?lexx // ?ge0_cp // -subr_ge0 opprK addr_ge0.
Qed.

(* kappa(A) is at least every TV_ij(A). *)
Lemma tv_le_kappa A i j : tv A i j <= kappa A.
Proof.
apply: le_trans (le_bigmax0 (fun i => \big[Num.max/0]_j tv A i j) i).
exact: (le_bigmax0 (tv A i)).
Qed.

(* kappa(A) is at most every nonnegative upper bound of all TV_ij(A). *)
Lemma kappa_le A c : 0 <= c -> (forall i j, tv A i j <= c) -> kappa A <= c.
Proof. by move=> c0 Ac; apply: bigmax0_le => // i; apply: bigmax0_le. Qed.

(* kappa(A) >= 0. *)
Lemma kappa_ge0 A : 0 <= kappa A.
Proof. exact: bigmax0_ge0. Qed.

(* kappa(A) <= 1 for stochastic A. *)
Lemma kappa_le1 A : stochastic A -> kappa A <= 1.
Proof. by move=> sA; apply: kappa_le => [|i j]; [exact: ler01 | exact: tv_le1]. Qed.

(* If two rows are distinct then N >= 2. *)
Lemma distinct_rows i j : i != j -> (1 < n)%N.
Proof.
apply: contraR; rewrite -leqNgt => n_le1; apply/eqP/val_inj => /=.
move: (leq_trans (ltn_ord i) n_le1) (leq_trans (ltn_ord j) n_le1).
by rewrite !ltnS !leqn0 => /eqP -> /eqP ->.
Qed.

(* For N >= 2 the maximum kappa(A) is attained by a pair of distinct rows. *)
Lemma kappa_attained A : (1 < n)%N -> exists i j, i != j /\ tv A i j = kappa A.
Proof.
move=> n_gt1; have zero_case: kappa A = 0 -> exists i j, i != j /\ tv A i j = kappa A.
  move=> k0; exists (Ordinal (ltnW n_gt1)), (Ordinal n_gt1); split=> //.
  by apply: le_anti; rewrite tv_le_kappa k0 tv_ge0.
case: (bigmax0_attained (fun i => \big[Num.max/0]_j tv A i j)) => [//|[i k_i]].
case: (bigmax0_attained (tv A i)) => [k_0|[j k_ij]].
  by apply: zero_case; rewrite /kappa k_i.
have [eq_ij|neq_ij] := eqVneq i j; last by exists i, j; rewrite /kappa k_i.
by apply: zero_case; rewrite /kappa k_i k_ij -eq_ij tv_refl.
Qed.

End Kappa.
