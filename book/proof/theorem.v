(* The pair identity, the bound kappa(L(A)) <= (1 + kappa(A)) / 2, condition (8)
   for equality, and the gap as a minimum over pairs. *)
From mathcomp Require Import all_ssreflect all_algebra.
From dobrushin_proof Require Import compat definitions kappa.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* If -1 <= x then |x| + 1 = |x + 1| + 2 (-x)_+. *)
Lemma norm_add1 (R : realFieldType) (x : R) : -1 <= x ->
  `|x| + 1 = `|x + 1| + (Num.max 0 (- x) + Num.max 0 (- x)).
Proof.
move=> x_ge; have x1 : 0 <= x + 1 by rewrite -[1]opprK subr_ge0.
rewrite (ger0_norm x1); case: (leP 0 (- x)) => [nx|/ltW nx].
  have x0 : x <= 0 by rewrite -oppr_ge0.
  by rewrite (ler0_norm x0) addrACA subrr add0r addrC.
have x0 : 0 <= x by rewrite -le_opp oppr0.
by rewrite (ger0_norm x0) !addr0.
Qed.

(* The sum over k of c if k = i, and 0 otherwise, is c. *)
Lemma sum_at (R : realFieldType) (n : nat) (i : 'I_n) (c : R) :
  \sum_k (k == i)%:R * c = c.
Proof.
rewrite (bigD1 i) //= eqxx mul1r big1 ?addr0 // => k /negbTE ->.
by rewrite mul0r.
Qed.

Section LazyFactor.

Variables (R : realFieldType) (n : nat).
Implicit Types (A : 'M[R]_n) (i j k : 'I_n).

(* L(A) is stochastic if A is. *)
Lemma lazy_stochastic A : stochastic A -> stochastic (lazy A).
Proof.
move=> [A0 A1]; split=> [i k|i].
  by rewrite !mxE mulr_ge0 ?invr_ge0 ?ler0n ?addr_ge0 ?ler0n.
under eq_bigr do rewrite !mxE.
rewrite -mulr_sumr big_split /= A1 (bigD1 i) //= eqxx big1 ?addr0.
  by rewrite mulrC half_double.
by move=> k; rewrite eq_sym => /negbTE ->.
Qed.

(* TV_ij(L(A)) is half of the total variation of the rows of I + A. *)
Lemma tv_lazy A i j : tv (lazy A) i j = tv (1%:M + A) i j / 2%:R.
Proof.
rewrite /tv; congr (_ / _); rewrite mulr_suml; apply: eq_bigr => k _.
by rewrite ![lazy A _ _]mxE -mulrBr normrM ger0_norm ?invr_ge0 ?ler0n // mulrC.
Qed.

(* Column k of the pair identity, before halving. *)
Lemma pair_identity_column A i j k : stochastic A -> i != j ->
  let p := Num.max 0 (A j i - A i i) in let q := Num.max 0 (A i j - A j j) in
  `|A i k - A j k| + ((k == i)%:R * 1 + (k == j)%:R * 1) =
  `|(1%:M + A) i k - (1%:M + A) j k|
    + ((k == i)%:R * (p + p) + (k == j)%:R * (q + q)).
Proof.
move=> sA neq_ij /=; rewrite !mxE ![_ == k]eq_sym.
have diff_ge a b c d : -1 <= A a b - A c d.
  by rewrite -le_opp opprK opprB le_move_left -[A c d]addr0
     le_add ?stochastic_le1 ?stochastic_ge0.
have [-> | neq_ki] := eqVneq k i.
  rewrite (negbTE neq_ij) !mul1r !mul0r !addr0 (norm_add1 (diff_ge _ _ _ _)) opprB.
  by congr (`|_| + _); rewrite add0r addrC addrA.
have [-> | neq_kj] := eqVneq k j.
  rewrite !mul1r !mul0r !add0r distrC (norm_add1 (diff_ge _ _ _ _)) opprB.
  by rewrite [in RHS]distrC; congr (`|_| + _); rewrite addrC addrA.
by rewrite !mul0r !addr0 !add0r.
Qed.

(* Pair identity: (1 + TV_ij(A)) / 2 - TV_ij(L(A)) = delta_ij for i != j. *)
Theorem pair_identity A i j : stochastic A -> i != j ->
  (1 + tv A i j) / 2%:R - tv (lazy A) i j = deficit A i j.
Proof.
move=> sA neq_ij; rewrite tv_lazy -mulrBl; congr (_ / _).
have := eq_bigr _ (fun k _ => pair_identity_column k sA neq_ij).
move/(_ 0 +%R (index_enum _) xpredT); rewrite /= !big_split /= !sum_at.
set p := Num.max _ _; set q := Num.max _ _ => sums.
apply/eqP; rewrite /tv -{1}[1]half_double -mulrDl -mulrBl half_eq.
by rewrite [1 + 1 + _]addrC sums addrAC subrr add0r addrACA.
Qed.

(* delta_ij >= 0. *)
Lemma deficit_ge0 A i j : 0 <= deficit A i j.
Proof. by apply: half_ge0; rewrite addr_ge0 ?le_max_left. Qed.

(* delta_ij = 0 exactly when the pair (i, j) is self-dominant. *)
Lemma deficit_eq0 A i j : (deficit A i j == 0) = self_dominant A i j.
Proof.
rewrite half_eq addr0 paddr_eq0 ?le_max_left //.
have max_eq0 (x y : R) : (Num.max 0 (x - y) == 0) = (x <= y).
  by rewrite eq_le le_max_left andbT max_leE lexx -[x - y <= 0]le_opp oppr0 opprB subr_ge0.
by rewrite !max_eq0.
Qed.

(* The contribution of a pair is (1 + kappa(A)) / 2 - TV_ij(L(A)). *)
Lemma pair_gapE A i j : stochastic A -> i != j ->
  pair_gap A i j = (1 + kappa A) / 2%:R - tv (lazy A) i j.
Proof.
move=> sA neq_ij; rewrite /pair_gap -(pair_identity sA neq_ij) addrA -mulrDl.
by congr (_ / _ - _); rewrite addrCA subrK.
Qed.

(* The contribution of every pair is nonnegative. *)
Lemma pair_gap_ge0 A i j : 0 <= pair_gap A i j.
Proof. by rewrite addr_ge0 ?deficit_ge0 // half_ge0 // subr_ge0 tv_le_kappa. Qed.

(* The bound: kappa(L(A)) <= (1 + kappa(A)) / 2. *)
Theorem dobrushin_bound A : stochastic A -> kappa (lazy A) <= (1 + kappa A) / 2%:R.
Proof.
have bound0 : 0 <= (1 + kappa A) / 2%:R.
  by rewrite half_ge0 // addr_ge0 ?ler01 ?kappa_ge0.
move=> sA; apply: kappa_le => // i j; have [->|neq_ij] := eqVneq i j.
  by rewrite tv_refl.
by rewrite -subr_ge0 -(pair_gapE sA neq_ij) pair_gap_ge0.
Qed.

(* The gap is nonnegative. *)
Lemma gap_ge0 A : stochastic A -> 0 <= gap A.
Proof. by move=> sA; rewrite subr_ge0 dobrushin_bound. Qed.

(* For N >= 2 the gap is the minimum of the contributions of pairs i != j. *)
Theorem gap_is_min A : stochastic A -> (1 < n)%N ->
  (forall i j, i != j -> gap A <= (kappa A - tv A i j) / 2%:R + deficit A i j) /\
  (exists i j, i != j /\ gap A = (kappa A - tv A i j) / 2%:R + deficit A i j).
Proof.
move=> sA n_gt1; split=> [i j neq_ij|].
  rewrite -/(pair_gap A i j) pair_gapE //; apply: le_sub => //.
  exact: tv_le_kappa.
have [i [j [neq_ij tv_ij]]] := kappa_attained (lazy A) n_gt1.
by exists i, j; split; rewrite // -/(pair_gap A i j) pair_gapE // tv_ij.
Qed.

(* A pair contributes 0 exactly when it attains kappa(A) and is self-dominant. *)
Lemma pair_gap_eq0 A i j :
  pair_gap A i j = 0 <-> tv A i j = kappa A /\ self_dominant A i j.
Proof.
have tv_part : 0 <= (kappa A - tv A i j) / 2%:R.
  by rewrite half_ge0 // subr_ge0 tv_le_kappa.
rewrite -deficit_eq0; split=> [/eqP|[tv_ij /eqP d0]]; last first.
  by rewrite /pair_gap tv_ij d0 subrr mul0r addr0.
rewrite paddr_eq0 ?deficit_ge0 // half_eq addr0 subr_eq0.
by case/andP=> /eqP.
Qed.

(* Condition (8): equality in the bound holds exactly when some pair of distinct
   rows attains kappa(A) and is mutually self-dominant. *)
Theorem equality_condition A : stochastic A ->
  kappa (lazy A) = (1 + kappa A) / 2%:R <->
  exists i j, [/\ i != j, tv A i j = kappa A & self_dominant A i j].
Proof.
move=> sA; have gap0 : kappa (lazy A) = (1 + kappa A) / 2%:R <-> gap A = 0.
  by rewrite /gap; split=> [->|/eqP]; rewrite ?subrr // subr_eq0 eq_sym => /eqP.
split=> [/gap0 g0|[i [j [neq_ij tv_ij sd_ij]]]].
  have [n_gt1|n_le1] := ltnP 1 n.
    have [_ [i [j [neq_ij g_ij]]]] := gap_is_min sA n_gt1.
    by have /pair_gap_eq0[tv_ij sd] : pair_gap A i j = 0; [rewrite -g0|exists i, j].
  have small (B : 'M[R]_n) : kappa B = 0.
    apply: le_anti; rewrite kappa_ge0 andbT; apply: kappa_le => // i j.
    have [->|/distinct_rows] := eqVneq i j; first by rewrite tv_refl.
    by rewrite ltnNge n_le1.
  move/eqP: g0; rewrite /gap !small subr0 addr0 half_eq addr0.
  by rewrite oner_eq0.
apply/gap0/le_anti; rewrite gap_ge0 // andbT.
have pg0 : pair_gap A i j = 0 by apply/pair_gap_eq0.
by rewrite -pg0 pair_gapE // le_sub // tv_le_kappa.
Qed.

(* The gap is positive exactly when condition (8) fails. *)
Corollary gap_gt0 A : stochastic A -> 0 < gap A <-> ~ condition8 A.
Proof.
move=> sA; rewrite lt_def gap_ge0 // andbT /gap subr_eq0; split.
  by move=> /eqP neq /(equality_condition sA) eq; apply: neq.
move=> no8; apply/eqP => eq; apply: no8; exact/(equality_condition sA).
Qed.

End LazyFactor.
