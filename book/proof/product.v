(* Submultiplicativity of the Dobrushin coefficient and the rollout bound. *)
From mathcomp Require Import all_ssreflect all_algebra.
From dobrushin_proof Require Import compat definitions kappa theorem.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Product.

Variables (R : realFieldType) (n : nat).
Implicit Types (A B : 'M[R]_n) (i j k : 'I_n) (s : seq 'M[R]_n).

(* The identity matrix is stochastic. *)
Lemma identity_stochastic : stochastic (1%:M : 'M[R]_n).
Proof.
split=> [i k|i]; first by rewrite mxE ler0n.
rewrite (bigD1 i) //= mxE eqxx big1 ?addr0 // => k.
by rewrite mxE eq_sym => /negbTE ->.
Qed.

(* A product of stochastic matrices is stochastic. *)
Lemma product_stochastic A B : stochastic A -> stochastic B -> stochastic (A *m B).
Proof.
move=> [A0 A1] [B0 B1]; split=> [i k|i].
  by rewrite mxE sumr_ge0 // => a _; rewrite mulr_ge0.
under eq_bigr => k _ do rewrite mxE.
rewrite exchange_big -[RHS](A1 i) /=; apply: eq_bigr => a _.
by rewrite -mulr_sumr B1 mulr1.
Qed.

(* For a sign vector s, the sums of s against rows a and b of B differ by at most
   2 TV_ab(B). *)
Lemma signed_row_diff B (s : 'I_n -> R) a b : (forall k, `|s k| = 1) ->
  \sum_k s k * B a k - \sum_k s k * B b k <= tv B a b + tv B a b.
Proof.
move=> s1; rewrite -splitr -sumrB; apply: ler_sum => k _.
by rewrite -mulrBr (le_trans (ler_norm _)) // normrM s1 mul1r.
Qed.

(* If sum v = 0 then the L1 norm of v B is at most kappa(B) times that of v. *)
Lemma contraction B (v : 'I_n -> R) : \sum_a v a = 0 ->
  \sum_k `|\sum_a v a * B a k| <= kappa B * \sum_a `|v a|.
Proof.
move=> v0; pose w k := \sum_a v a * B a k.
pose s k : R := if 0 <= w k then 1 else -1.
have s1 k : `|s k| = 1 by rewrite /s; case: ifP; rewrite ?normrN normr1.
have abs_w k : `|w k| = s k * w k.
  rewrite /s; case: leP => [w0|/ltW w0]; first by rewrite ger0_norm ?mul1r.
  by rewrite ler0_norm ?mulN1r.
pose f a := \sum_k s k * B a k.
have dual : \sum_k `|w k| = \sum_a v a * f a.
  under eq_bigr => k _ do rewrite abs_w mulr_sumr.
  rewrite exchange_big; apply: eq_bigr => a _; rewrite mulr_sumr.
  by apply: eq_bigr => k _; rewrite mulrCA.
have [c f_c] : exists c, forall a, `|f a - c| <= kappa B.
  have [n_gt0|n0] := ltnP 0 n; last first.
    by exists 0 => a; have := leq_trans (ltn_ord a) n0; rewrite ltn0.
  have [m le_m] := exists_min f (Ordinal n_gt0).
  exists (f m + kappa B) => a; rewrite ler_norml opprD addrA; apply/andP; split.
    by rewrite -[X in X <= _]add0r le_add // subr_ge0.
  rewrite le_move_left; apply: le_trans (signed_row_diff B a m s1) _.
  by apply: le_add; apply: tv_le_kappa.
rewrite -/w dual mulr_sumr.
have -> : \sum_a v a * f a = \sum_a v a * (f a - c).
  under [RHS]eq_bigr => a _ do rewrite mulrBr.
  by rewrite sumrB -mulr_suml v0 mul0r subr0.
apply: ler_sum => a _; apply: le_trans (ler_norm _) _.
by rewrite normrM mulrC; apply: le_mul.
Qed.

(* Submultiplicativity: kappa(A B) <= kappa(A) kappa(B). *)
Theorem kappa_submultiplicative A B : stochastic A -> stochastic B ->
  kappa (A *m B) <= kappa A * kappa B.
Proof.
move=> [_ A1] _; apply: kappa_le => [|i j]; first by rewrite mulr_ge0 ?kappa_ge0.
apply: (@le_trans _ _ (kappa B * tv A i j)); last first.
  by rewrite mulrC; apply: le_mul; rewrite ?tv_ge0 ?kappa_ge0 ?tv_le_kappa.
have zero : \sum_a (A i a - A j a) = 0 by rewrite sumrB !A1 subrr.
rewrite /tv mulrA le_half; apply: le_trans (contraction B zero).
apply: ler_sum => k _; rewrite !mxE -sumrB.
by under [in X in _ <= X]eq_bigr => a _ do rewrite mulrBl.
Qed.

(* The rollout of stochastic layers is stochastic. *)
Lemma rollout_stochastic s :
  (forall A, A \in s -> stochastic A) -> stochastic (rollout s).
Proof.
elim: s => [|A s IHs] s_stoch; first exact: identity_stochastic.
apply: product_stochastic; last by apply/lazy_stochastic/s_stoch/mem_head.
by apply: IHs => B Bs; apply: s_stoch; rewrite in_cons Bs orbT.
Qed.

(* kappa(rollout) is at most the product of the kappa(L(A_l)). *)
Lemma rollout_lazy_bound s : (forall A, A \in s -> stochastic A) ->
  kappa (rollout s) <= \prod_(A <- s) kappa (lazy A).
Proof.
elim: s => [|A s IHs] s_stoch.
  by rewrite big_nil; apply/kappa_le1/identity_stochastic.
have tail B : B \in s -> stochastic B by move=> Bs; apply: s_stoch; rewrite in_cons Bs orbT.
have head : stochastic (lazy A) by apply/lazy_stochastic/s_stoch/mem_head.
rewrite big_cons mulrC; apply: le_trans (kappa_submultiplicative (rollout_stochastic tail) head) _.
by apply: le_mul; rewrite ?kappa_ge0 ?IHs.
Qed.

(* The rollout bound: kappa(rollout) <= prod_l (1 + kappa(A_l)) / 2. *)
Theorem rollout_bound s : (forall A, A \in s -> stochastic A) ->
  kappa (rollout s) <= \prod_(A <- s) ((1 + kappa A) / 2%:R).
Proof.
move=> s_stoch; apply: le_trans (rollout_lazy_bound s_stoch) _.
rewrite big_seq [X in _ <= X]big_seq; apply: ler_prod => A /s_stoch sA.
by rewrite kappa_ge0 dobrushin_bound.
Qed.

End Product.
