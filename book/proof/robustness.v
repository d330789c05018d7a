(* Stability of TV_ij, kappa, the gap and condition (8) under small changes. *)
From mathcomp Require Import all_ssreflect all_algebra.
From dobrushin_proof Require Import compat definitions kappa theorem.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Robustness.

Variables (R : realFieldType) (n : nat).
Implicit Types (A B : 'M[R]_n) (i j k l : 'I_n) (eta eps : R).

(* Every row of A is within eta of the same row of B in L1 norm. *)
Definition rows_within eta A B : Prop := forall i, \sum_k `|A i k - B i k| <= eta.

(* Every entry of A is within eps of the same entry of B. *)
Definition entries_within eps A B : Prop := forall i k, `|A i k - B i k| <= eps.

(* Being within eta is symmetric. *)
Lemma rows_within_sym eta A B : rows_within eta A B -> rows_within eta B A.
Proof.
by move=> AB i; rewrite (eq_bigr (fun k => `|A i k - B i k|)) // => k _; rewrite distrC.
Qed.

(* Being within eps is symmetric. *)
Lemma entries_within_sym eps A B : entries_within eps A B -> entries_within eps B A.
Proof. by move=> AB i k; rewrite distrC. Qed.

(* Rows of stochastic matrices within eta have entries within eta / 2. *)
Lemma entries_within_half eta A B : stochastic A -> stochastic B ->
  rows_within eta A B -> entries_within (eta / 2%:R) A B.
Proof.
move=> [_ A1] [_ B1] AB i k; pose d l := A i l - B i l.
rewrite -[`|_|]half_double le_half; apply: le_trans (AB i).
rewrite (bigD1 k) //=; apply: le_add => //.
have sum_d : \sum_l d l = 0 by rewrite sumrB A1 B1 subrr.
have -> : A i k - B i k = - \sum_(l | l != k) d l.
  by apply/eqP; rewrite -addr_eq0 -[X in _ == X]sum_d [X in _ == X](bigD1 k).
by rewrite normrN; apply: ler_norm_sum.
Qed.

(* One side of the Lipschitz bound for TV_ij. *)
Lemma tv_le_add eta A B i j : rows_within eta A B -> tv A i j <= tv B i j + eta.
Proof.
move=> AB; rewrite -[X in _ + X]half_double -mulrDl le_half.
apply: le_trans (le_add (lexx _) (le_add (AB i) (AB j))); rewrite -!big_split /=.
apply: ler_sum => k _; rewrite [`|A j k - _|]distrC.
have -> : A i k - A j k = B i k - B j k + (A i k - B i k + (B j k - A j k)).
  by rewrite addrACA [B i k + _]addrC subrK addKr.
apply: le_trans (norm_add_le _ _) _; apply: le_add => //; exact: norm_add_le.
Qed.

(* One side of the Lipschitz bound for kappa. *)
Lemma kappa_le_add eta A B : 0 <= eta -> rows_within eta A B -> kappa A <= kappa B + eta.
Proof.
move=> eta0 AB; apply: kappa_le => [|i j]; first by rewrite addr_ge0 ?kappa_ge0.
by apply: le_trans (tv_le_add i j AB) _; apply: le_add; rewrite ?tv_le_kappa.
Qed.

(* |x - y| <= c follows from x <= y + c and y <= x + c. *)
Lemma dist_le (x y c : R) : x <= y + c -> y <= x + c -> `|x - y| <= c.
Proof.
move=> xy yx; rewrite ler_norml [x - y <= c]le_move_left [c + y]addrC xy andbT.
by rewrite -le_opp opprK opprB le_move_left addrC.
Qed.

(* |TV_ij(A) - TV_ij(B)| <= eta if rows differ by at most eta in L1 norm. *)
Theorem tv_lipschitz eta A B i j : rows_within eta A B -> `|tv A i j - tv B i j| <= eta.
Proof.
move=> AB; apply: dist_le; first exact: tv_le_add.
exact: tv_le_add (rows_within_sym AB).
Qed.

(* |kappa(A) - kappa(B)| <= eta if rows differ by at most eta in L1 norm. *)
Theorem kappa_lipschitz eta A B : 0 <= eta -> rows_within eta A B ->
  `|kappa A - kappa B| <= eta.
Proof.
move=> eta0 AB; apply: dist_le; first exact: kappa_le_add.
exact: kappa_le_add (rows_within_sym AB).
Qed.

(* Lazy factors are twice as close as the matrices themselves. *)
Lemma lazy_within eta A B : rows_within eta A B -> rows_within (eta / 2%:R) (lazy A) (lazy B).
Proof.
move=> AB i; apply: le_trans (_ : (\sum_k `|A i k - B i k|) / 2%:R <= _); last by rewrite le_half.
rewrite mulr_suml; apply: ler_sum => k _; rewrite !mxE -mulrBr normrM.
by rewrite ger0_norm ?invr_ge0 ?ler0n // opprD addrACA subrr add0r mulrC.
Qed.

(* One side of the Lipschitz bound for the gap. *)
Lemma gap_le_add eta A B : 0 <= eta -> rows_within eta A B -> gap A <= gap B + eta.
Proof.
move=> eta0 AB; have l_BA := kappa_le_add (half_ge0 eta0) (lazy_within (rows_within_sym AB)).
have -> : gap B + eta =
    ((1 + kappa B) / 2%:R + eta / 2%:R) - (kappa (lazy B) - eta / 2%:R).
  by rewrite opprB [eta / _ - _]addrC addrACA -splitr.
apply: le_sub; last by rewrite le_move_left.
by rewrite -mulrDl le_half -addrA le_add // kappa_le_add.
Qed.

(* |gap(A) - gap(B)| <= eta if rows differ by at most eta in L1 norm. *)
Theorem gap_lipschitz eta A B : 0 <= eta -> rows_within eta A B -> `|gap A - gap B| <= eta.
Proof.
move=> eta0 AB; apply: dist_le; first exact: gap_le_add.
exact: gap_le_add (rows_within_sym AB).
Qed.

(* If the gap of A exceeds eta then condition (8) fails for B. *)
Theorem gap_failure_stable eta A B : 0 <= eta -> stochastic B -> rows_within eta A B ->
  eta < gap A -> ~ condition8 B.
Proof.
move=> eta0 sB AB gapA; apply/(gap_gt0 sB); rewrite ltNge; apply/negP => gapB.
have := le_trans (gap_le_add eta0 AB) (le_add gapB (lexx eta)).
by rewrite add0r leNgt gapA.
Qed.

(* The pair (i, j) is self-dominant exactly when its slack is nonnegative. *)
Lemma slack_ge0 A i j : (0 <= slack A i j) = self_dominant A i j.
Proof. by rewrite /slack le_minE !subr_ge0. Qed.

(* One side of the Lipschitz bound for the slack. *)
Lemma slack_le_add eps A B i j : entries_within eps A B ->
  slack A i j <= slack B i j + (eps + eps).
Proof.
move=> AB; have diff a b c d : A a b - A c d <= B a b - B c d + (eps + eps).
  have := le_add (AB a b) (entries_within_sym AB c d).
  have := le_add (ler_norm (A a b - B a b)) (ler_norm (B c d - A c d)).
  move=> le1 /(le_trans le1); rewrite [B c d - _]addrC addrACA [- B a b + _]addrC.
  by rewrite -[B c d - B a b]opprB le_move_left [eps + eps + _]addrC.
rewrite -le_move_left /slack le_minE !le_move_left.
have := lexx (slack A i j); rewrite {2}/slack le_minE => /andP[le_i le_j].
by rewrite (le_trans le_i (diff _ _ _ _)) (le_trans le_j (diff _ _ _ _)).
Qed.

(* Stability of a holding condition (8): rows move by at most eta in L1 norm,
   entries by at most eps; a pair of A with slack >= 2 eps beats by 2 eta every
   pair with less slack; then condition (8) holds for B. *)
Theorem condition_stable eta eps A B i j :
  rows_within eta A B -> entries_within eps A B ->
  i != j -> eps + eps <= slack A i j ->
  (forall k l, k != l -> slack A k l < eps + eps -> tv A k l + (eta + eta) <= tv A i j) ->
  condition8 B.
Proof.
move=> rAB eAB neq_ij slack_ij beats.
have sdB k l : eps + eps <= slack A k l -> self_dominant B k l.
  move=> slack_kl; rewrite -slack_ge0; have := le_trans slack_kl (slack_le_add k l eAB).
  by rewrite -[X in X <= _]add0r le_move_right addrK.
have [k [l [neq_kl tv_kl]]] := kappa_attained B (distinct_rows neq_ij).
have [slack_kl|slack_kl] := leP (eps + eps) (slack A k l).
  by exists k, l; split; rewrite ?sdB.
exists i, j; split; rewrite ?sdB //; apply: le_anti; rewrite tv_le_kappa -tv_kl.
have := le_trans (beats k l neq_kl slack_kl) (tv_le_add i j rAB).
rewrite addrA le_move_right addrK => le_ij; apply: le_trans le_ij.
exact: tv_le_add (rows_within_sym rAB).
Qed.

(* Stability of a failing condition (8): if some TV_ij(A) exceeds by more than
   2 eta that of every pair with slack >= - 2 eps, then condition (8) fails for B. *)
Theorem failure_stable eta eps A B i j :
  rows_within eta A B -> entries_within eps A B ->
  (forall k l, k != l -> - (eps + eps) <= slack A k l -> tv A k l + (eta + eta) < tv A i j) ->
  ~ condition8 B.
Proof.
move=> rAB eAB beaten [k [l [neq_kl tv_kl sd_kl]]].
have slack_kl : - (eps + eps) <= slack A k l.
  rewrite -[X in X <= _]add0r le_move_left.
  by apply: le_trans (slack_le_add k l (entries_within_sym eAB)); rewrite slack_ge0.
have := beaten k l neq_kl slack_kl; rewrite ltNge => /negP; apply.
apply: le_trans (tv_le_add i j rAB) _; rewrite addrA; apply: le_add => //.
apply: le_trans (tv_le_kappa B i j) _; rewrite -tv_kl.
exact: tv_le_add (rows_within_sym rAB).
Qed.

(* condition_stable for stochastic matrices, with the row distance eta alone. *)
Corollary condition_stable_stochastic eta A B i j :
  stochastic A -> stochastic B -> rows_within eta A B ->
  i != j -> eta <= slack A i j ->
  (forall k l, k != l -> slack A k l < eta -> tv A k l + (eta + eta) <= tv A i j) ->
  condition8 B.
Proof.
move=> sA sB AB; rewrite {1 2}(splitr eta).
exact: (condition_stable AB (entries_within_half sA sB AB)).
Qed.

(* failure_stable for stochastic matrices, with the row distance eta alone. *)
Corollary failure_stable_stochastic eta A B i j :
  stochastic A -> stochastic B -> rows_within eta A B ->
  (forall k l, k != l -> - eta <= slack A k l -> tv A k l + (eta + eta) < tv A i j) ->
  ~ condition8 B.
Proof.
move=> sA sB AB; rewrite {1}(splitr eta).
exact: (failure_stable AB (entries_within_half sA sB AB)).
Qed.

End Robustness.
