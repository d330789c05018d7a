(* A sufficient condition for the rollout bound as a whole to be tight: every
   layer multiplies one and the same difference of tokens by its kappa. *)
From mathcomp Require Import all_ssreflect all_algebra.
From dobrushin_proof Require Import compat definitions kappa theorem product.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Tight.

Variables (R : realFieldType) (n : nat).
Implicit Types (A : 'M[R]_n) (i j k : 'I_n) (s : seq 'M[R]_n) (v : 'rV[R]_n).

(* If v A = kappa(A) v then v L(A) = (1 + kappa(A)) / 2 v. *)
Lemma lazy_eigenvector A v : v *m A = kappa A *: v ->
  v *m lazy A = ((1 + kappa A) / 2%:R) *: v.
Proof.
by move=> vA; rewrite -scalemxAr mulmxDr mulmx1 vA -{1}[v]scale1r -scalerDl scalerA mulrC.
Qed.

(* A common eigenvector passes to the rollout, with the bound as eigenvalue. *)
Lemma rollout_eigenvector s v : (forall A, A \in s -> v *m A = kappa A *: v) ->
  v *m rollout s = (\prod_(A <- s) ((1 + kappa A) / 2%:R)) *: v.
Proof.
elim: s => [|A s IHs] vs; first by rewrite big_nil scale1r mulmx1.
have IH : v *m rollout s = (\prod_(A <- s) ((1 + kappa A) / 2%:R)) *: v.
  by apply: IHs => B Bs; apply: vs; rewrite in_cons Bs orbT.
rewrite big_cons /= mulmxA IH -scalemxAl lazy_eigenvector ?scalerA 1?mulrC //.
exact/vs/mem_head.
Qed.

(* The rollout bound is tight if some v != 0 with sum 0 satisfies
   v A_l = kappa(A_l) v in every layer. *)
Theorem rollout_tight s v : (forall A, A \in s -> stochastic A) ->
  v != 0 -> \sum_k v 0 k = 0 -> (forall A, A \in s -> v *m A = kappa A *: v) ->
  kappa (rollout s) = \prod_(A <- s) ((1 + kappa A) / 2%:R).
Proof.
move=> s_stoch v_neq0 sum_v vs; apply: le_anti; rewrite rollout_bound //=.
have prod0 : 0 <= \prod_(A <- s) ((1 + kappa A) / 2%:R).
  by apply: prodr_ge0 => A _; rewrite half_ge0 // addr_ge0 ?ler01 ?kappa_ge0.
have norm_gt0 : 0 < \sum_k `|v 0 k|.
  rewrite lt_def sumr_ge0 // andbT; apply: contra v_neq0 => /eqP norm0.
  apply/eqP/rowP => k; rewrite mxE; apply/normr0_eq0/le_anti.
  rewrite normr_ge0 andbT -norm0 (bigD1 k) //= -subr_ge0 addrC addKr.
  exact: sumr_ge0.
have := contraction (rollout s) sum_v.
rewrite (eq_bigr (fun k => \prod_(A <- s) ((1 + kappa A) / 2%:R) * `|v 0 k|)); last first.
  move=> k _; have /rowP/(_ k) := rollout_eigenvector vs; rewrite !mxE => ->.
  by rewrite normrM ger0_norm.
rewrite -mulr_sumr -subr_ge0 -mulrBl => /(mulr_ge0 (ltW _)) => /(_ (\sum_k `|v 0 k|)^-1).
by rewrite invr_gt0 mulrC mulfK ?gt_eqF // subr_ge0; apply.
Qed.

(* In particular: one pair attains kappa(A_l), is self-dominant, and its rows
   agree outside columns i and j, in every layer. *)
Corollary rollout_tight_pair s i j : i != j ->
  (forall A, A \in s -> [/\ stochastic A, tv A i j = kappa A, self_dominant A i j
     & forall k, k != i -> k != j -> A i k = A j k]) ->
  kappa (rollout s) = \prod_(A <- s) ((1 + kappa A) / 2%:R).
Proof.
move=> neq_ij hyp; pose v : 'rV[R]_n := \row_k ((k == i)%:R - (k == j)%:R).
have sum_delta k : \sum_l (l == k)%:R = 1 :> R.
  by under eq_bigr => l _ do rewrite -[(_ == _)%:R]mulr1; rewrite sum_at.
apply: (@rollout_tight s v) => [A /hyp[]//|||A /hyp[[A0 A1] tv_ij /andP[le_i le_j] agree]].
- apply/eqP => /rowP/(_ i); rewrite !mxE eqxx (negbTE neq_ij) subr0 => /eqP.
  by rewrite oner_eq0.
- by under eq_bigr => k _ do rewrite mxE; rewrite sumrB !sum_delta subrr.
pose d := A i i - A j i.
have d0 : 0 <= d by rewrite subr_ge0.
have diff_j : A i j - A j j = - d.
  apply/eqP; rewrite -addr_eq0 addrC; apply/eqP.
  have : \sum_k (A i k - A j k) = 0 by rewrite sumrB !A1 subrr.
  rewrite (bigD1 i) //= (bigD1 j) 1?eq_sym //= big1 ?addr0 // => k /andP[ki kj].
  by rewrite agree ?subrr.
have kappa_d : kappa A = d.
  rewrite -tv_ij /tv (bigD1 i) //= (bigD1 j) 1?eq_sym //= big1 ?addr0; last first.
    by move=> k /andP[ki kj]; rewrite agree ?subrr ?normr0.
  by rewrite diff_j normrN -/d (ger0_norm d0) half_double.
apply/rowP => k; rewrite !mxE kappa_d.
under eq_bigr => a _ do rewrite mxE mulrBl.
rewrite sumrB.
have row_sum l : \sum_a (a == l)%:R * A a k = A l k.
  rewrite (bigD1 l) //= eqxx mul1r big1 ?addr0 // => a /negbTE ->.
  by rewrite mul0r.
rewrite !row_sum; have [->|ki] := eqVneq k i.
  by rewrite (negbTE neq_ij) subr0 mulr1.
have [->|kj] := eqVneq k j; first by rewrite sub0r mulrN1 diff_j.
by rewrite agree // !subrr mulr0.
Qed.

End Tight.

(* Total variation is symmetric. *)
Lemma tv_sym (R : realFieldType) (n : nat) (A : 'M[R]_n) i j : tv A i j = tv A j i.
Proof. by rewrite /tv; congr (_ / _); apply: eq_bigr => k _; rewrite distrC. Qed.

(* Two tokens: if every layer satisfies condition (8) then the rollout bound is
   tight. *)
Corollary rollout_tight_two_tokens (R : realFieldType) (s : seq 'M[R]_2) :
  (forall A, A \in s -> stochastic A /\ condition8 A) ->
  kappa (rollout s) = \prod_(A <- s) ((1 + kappa A) / 2%:R).
Proof.
pose i : 'I_2 := ord0; pose j : 'I_2 := ord_max.
have two (k : 'I_2) : k = i \/ k = j.
  by case: k => [[|[|//]] lt_k]; [left | right]; apply/val_inj.
move=> hyp; apply: (@rollout_tight_pair R 2 s i j) => // A /hyp[sA [a [b [neq_ab tv_ab sd_ab]]]].
have other k : k != i -> k != j -> A i k = A j k.
  by case: (two k) => ->; rewrite eqxx.
split=> //; case: (two a) neq_ab tv_ab sd_ab => ->; case: (two b) => ->; rewrite ?eqxx //.
  by rewrite tv_sym.
by move=> _ _ /andP[sd_a sd_b]; apply/andP.
Qed.
