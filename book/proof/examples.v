(* Exact 3 x 3 examples over the rationals: tight layers whose rollout is strictly
   below the bound, and condition (8) is not stable under averaging heads. *)
From mathcomp Require Import all_ssreflect all_algebra.
From dobrushin_proof Require Import compat definitions kappa theorem.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* The 3 x 3 rational matrix with the given rows. *)
Definition of_rows (s : seq (seq rat)) : 'M[rat]_3 :=
  \matrix_(i, j) nth 0 (nth [::] s i) j.

(* The mean of two heads. *)
Definition mean (P Q : 'M[rat]_3) : 'M[rat]_3 := 2%:R^-1 *: (P + Q).

Local Notation half := (1 / 2%:R : rat).

Definition layer_1 := of_rows
  [:: [:: 1; 0; 0];
      [:: 0; 1; 0];
      [:: 1; 0; 0]].

Definition layer_2 := of_rows
  [:: [:: 1; 0; 0];
      [:: 1; 0; 0];
      [:: 0; 1; 0]].

Definition tight_head_1 := of_rows
  [:: [:: 1; 0; 0];
      [:: 1; 0; 0];
      [:: 0; 1; 0]].

Definition tight_head_2 := of_rows
  [:: [:: 0; 0; 1];
      [:: 1; 0; 0];
      [:: 0; 0; 1]].

Definition loose_head_1 := of_rows
  [:: [:: half; 0; half];
      [:: 1; 0; 0];
      [:: 0; half; half]].

Definition loose_head_2 := of_rows
  [:: [:: half; 0; half];
      [:: 0; half; half];
      [:: 1; 0; 0]].

Section Computation.

Implicit Types (s t : seq (seq rat)) (i j k : nat).

Let entry s i j : rat := nth 0 (nth [::] s i) j.
Let table (f : nat -> nat -> rat) := mkseq (fun i => mkseq (f i) 3) 3.
Let add3 (f : nat -> rat) := f 0%N + (f 1%N + (f 2%N + 0)).
Let max3 (f : nat -> rat) := Num.max (f 0%N) (Num.max (f 1%N) (Num.max (f 2%N) 0)).
Let tv3 s i j := add3 (fun k => `|entry s i k - entry s j k|) / 2%:R.
Let kappa3 s := max3 (fun i => max3 (tv3 s i)).
Let lazy3 s := table (fun i j => 2%:R^-1 * ((i == j)%:R + entry s i j)).
Let mean3 s t := table (fun i j => 2%:R^-1 * (entry s i j + entry t i j)).
Let product3 s t := table (fun i j => add3 (fun k => entry s i k * entry t k j)).
Let stochastic3 s :=
  all (fun i => (add3 (entry s i) == 1) && all (fun k => 0 <= entry s i k) (iota 0 3)) (iota 0 3).

(* The matrix of a table has the entries of the table. *)
Lemma of_rows_table f : of_rows (table f) = \matrix_(i, j) f i j.
Proof. by apply/matrixP => i j; rewrite !mxE !nth_mkseq. Qed.

(* kappa of a 3 x 3 matrix, computed from its rows. *)
Lemma kappa_of_rows s : kappa (of_rows s) = kappa3 s.
Proof. by rewrite /kappa !big_ord_recl !big_ord0 /tv !big_ord_recl !big_ord0 !mxE. Qed.

(* The lazy factor of a 3 x 3 matrix, computed from its rows. *)
Lemma lazy_of_rows s : lazy (of_rows s) = of_rows (lazy3 s).
Proof. by rewrite of_rows_table; apply/matrixP => i j; rewrite !mxE. Qed.

(* The mean of two 3 x 3 matrices, computed from their rows. *)
Lemma mean_of_rows s t : mean (of_rows s) (of_rows t) = of_rows (mean3 s t).
Proof. by rewrite of_rows_table; apply/matrixP => i j; rewrite !mxE. Qed.

(* The product of two 3 x 3 matrices, computed from their rows. *)
Lemma product_of_rows s t : of_rows s *m of_rows t = of_rows (product3 s t).
Proof.
rewrite of_rows_table; apply/matrixP => i j.
by rewrite !mxE !big_ord_recl big_ord0 !mxE.
Qed.

(* A 3 x 3 matrix is stochastic if its rows pass the computed check. *)
Lemma stochastic_of_rows s : stochastic3 s -> stochastic (of_rows s).
Proof.
move=> /allP s_ok; have row_ok (i : 'I_3) := s_ok i (etrans (mem_iota 0 3 i) (ltn_ord i)).
split=> [i k|i]; have /andP[/eqP sum1 /allP ge0] := row_ok i.
  by rewrite mxE; apply: ge0; rewrite mem_iota ltn_ord.
by rewrite !big_ord_recl big_ord0 !mxE.
Qed.

(* Condition (8) from the rows: both sides of the bound are equal. *)
Lemma condition8_of_rows s : stochastic3 s ->
  kappa3 (lazy3 s) == (1 + kappa3 s) / 2%:R -> condition8 (of_rows s).
Proof.
move=> /stochastic_of_rows /equality_condition equiv /eqP eq.
by apply/equiv; rewrite lazy_of_rows !kappa_of_rows.
Qed.

(* The negation of condition (8) from the rows: the two sides differ. *)
Lemma not_condition8_of_rows s : stochastic3 s ->
  kappa3 (lazy3 s) != (1 + kappa3 s) / 2%:R -> ~ condition8 (of_rows s).
Proof.
move=> /stochastic_of_rows /equality_condition equiv /eqP neq /equiv.
by rewrite lazy_of_rows !kappa_of_rows.
Qed.

(* Two tight layers whose rollout is strictly below the product bound. *)
Theorem rollout_strict :
  [/\ stochastic layer_1 /\ stochastic layer_2,
      kappa (lazy layer_1) = (1 + kappa layer_1) / 2%:R,
      kappa (lazy layer_2) = (1 + kappa layer_2) / 2%:R,
      kappa (rollout [:: layer_1; layer_2]) = 3%:R / 4%:R
    & \prod_(A <- [:: layer_1; layer_2]) ((1 + kappa A) / 2%:R) = 1].
Proof.
split; first by split; apply: stochastic_of_rows; vm_compute.
- by rewrite lazy_of_rows !kappa_of_rows; apply/eqP; vm_compute.
- by rewrite lazy_of_rows !kappa_of_rows; apply/eqP; vm_compute.
- rewrite /= mul1mx !lazy_of_rows product_of_rows kappa_of_rows.
  by apply/eqP; vm_compute.
by rewrite !big_cons big_nil !kappa_of_rows; apply/eqP; vm_compute.
Qed.

(* Two stochastic heads satisfy condition (8) and their mean does not. *)
Theorem tight_heads_loose_mean :
  [/\ stochastic tight_head_1 /\ stochastic tight_head_2,
      condition8 tight_head_1, condition8 tight_head_2
    & ~ condition8 (mean tight_head_1 tight_head_2)].
Proof.
split; first by split; apply: stochastic_of_rows; vm_compute.
- by apply: condition8_of_rows; vm_compute.
- by apply: condition8_of_rows; vm_compute.
by rewrite mean_of_rows; apply: not_condition8_of_rows; vm_compute.
Qed.

(* Two stochastic heads fail condition (8) and their mean satisfies it. *)
Theorem loose_heads_tight_mean :
  [/\ stochastic loose_head_1 /\ stochastic loose_head_2,
      ~ condition8 loose_head_1, ~ condition8 loose_head_2
    & condition8 (mean loose_head_1 loose_head_2)].
Proof.
split; first by split; apply: stochastic_of_rows; vm_compute.
- by apply: not_condition8_of_rows; vm_compute.
- by apply: not_condition8_of_rows; vm_compute.
by rewrite mean_of_rows; apply: condition8_of_rows; vm_compute.
Qed.

End Computation.
