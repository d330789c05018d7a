(* Doeblin bounds on the Dobrushin coefficient. *)
From mathcomp Require Import all_ssreflect all_algebra.
From dobrushin_proof Require Import compat definitions kappa.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Doeblin.

Variables (R : realFieldType) (n : nat).
Implicit Types (A : 'M[R]_n) (i j k : 'I_n).

(* Overlap identity: TV_ij(A) = 1 - sum_k min(A_ik, A_jk). *)
Lemma tv_overlap A i j : stochastic A ->
  tv A i j = 1 - \sum_k Num.min (A i k) (A j k).
Proof.
move=> [_ A1]; apply/eqP; rewrite half_eq addrACA -{1}(A1 i) -(A1 j).
rewrite -opprD -!big_split -sumrB /=; apply/eqP/eq_bigr => k _.
case: (leP (A i k) (A j k)) => [le_ij|/ltW le_ji].
  by rewrite ler0_norm ?subr_le0 // opprB opprD addrACA subrr add0r.
by rewrite ger0_norm ?subr_ge0 // opprD addrACA subrr addr0.
Qed.

(* The smallest entry of column k is at most A_ik. *)
Lemma column_min_le A i k : column_min A k <= A i k.
Proof. exact: (bigmin1_le (A^~ k)). Qed.

(* Doeblin bound: kappa(A) <= 1 - sum_k min_i A_ik. *)
Theorem doeblin_bound A : stochastic A -> kappa A <= 1 - \sum_k column_min A k.
Proof.
move=> sA; have tv_bound i j : tv A i j <= 1 - \sum_k column_min A k.
  rewrite tv_overlap //; apply: le_sub => //; apply: ler_sum => k _.
  by rewrite le_minE !column_min_le.
apply: kappa_le => //; have [n_gt0|n0] := ltnP 0 n.
  by have := tv_bound (Ordinal n_gt0) (Ordinal n_gt0); rewrite tv_refl.
rewrite big1 ?subr0 ?ler01 // => k _.
by have := leq_trans (ltn_ord k) n0; rewrite ltn0.
Qed.

(* If every entry is at least eps, then 1 - sum_k min_i A_ik <= 1 - N eps: the
   bound with eps is the weaker one. *)
Lemma doeblin_weaker A eps : stochastic A -> (forall i k, eps <= A i k) ->
  1 - \sum_k column_min A k <= 1 - n%:R * eps.
Proof.
move=> sA A_eps; apply: le_sub => //.
have -> : n%:R * eps = \sum_(k < n) eps by rewrite sumr_const card_ord mulr_natl.
apply: ler_sum => k _; apply: le_bigmin1 => //.
exact: le_trans (A_eps k k) (stochastic_le1 k k sA).
Qed.

(* Doeblin bound with a uniform eps: kappa(A) <= 1 - N eps. *)
Theorem doeblin_bound_uniform A eps : stochastic A ->
  (forall i k, eps <= A i k) -> kappa A <= 1 - n%:R * eps.
Proof. by move=> sA A_eps; apply: le_trans (doeblin_bound sA) (doeblin_weaker sA A_eps). Qed.

End Doeblin.
