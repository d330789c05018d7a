(* Elementary order facts, proved here from facts whose names are the same in
   MathComp 1.15 and 2.x, so that the other files need no renamed lemma. *)
From mathcomp Require Import all_ssreflect all_algebra.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section OrderedField.

Variable R : realFieldType.
Implicit Types x y z t : R.

(* x <= y and z <= t give x + z <= y + t. *)
Lemma le_add x y z t : x <= y -> z <= t -> x + z <= y + t.
Proof.
by move=> xy zt; rewrite -subr_ge0 opprD addrACA addr_ge0 ?subr_ge0.
Qed.

(* x + z <= y exactly when x <= y - z. *)
Lemma le_move_right x y z : (x + z <= y) = (x <= y - z).
Proof. by rewrite -subr_ge0 -[RHS]subr_ge0 opprD addrA addrAC. Qed.

(* x - z <= y exactly when x <= y + z. *)
Lemma le_move_left x y z : (x - z <= y) = (x <= y + z).
Proof. by rewrite le_move_right opprK. Qed.

(* -x <= -y exactly when y <= x. *)
Lemma le_opp x y : (- x <= - y) = (y <= x).
Proof. by rewrite -subr_ge0 opprK addrC subr_ge0. Qed.

(* x <= y and z <= t give x - t <= y - z. *)
Lemma le_sub x y z t : x <= y -> z <= t -> x - t <= y - z.
Proof. by move=> xy zt; apply: le_add => //; rewrite le_opp. Qed.

(* If z >= 0 and x <= y then z x <= z y. *)
Lemma le_mul_left x y z : 0 <= z -> x <= y -> z * x <= z * y.
Proof.
by move=> z0 xy; rewrite -subr_ge0 -mulrBr mulr_ge0 ?subr_ge0.
Qed.

(* If 0 <= x <= y and 0 <= z <= t then x z <= y t. *)
Lemma le_mul x y z t : 0 <= x -> 0 <= z -> x <= y -> z <= t -> x * z <= y * t.
Proof.
move=> x0 z0 xy zt; apply: (@le_trans _ _ (x * t)); first exact: le_mul_left.
rewrite mulrC [y * t]mulrC; apply: le_mul_left => //; exact: le_trans zt.
Qed.

(* |x + y| <= |x| + |y|. *)
Lemma norm_add_le x y : `|x + y| <= `|x| + `|y|.
Proof.
have := ler_norm_sum (index_enum bool_finType) (fun b : bool => if b then x else y) xpredT.
by rewrite !big_bool.
Qed.

(* max(x, y) <= z exactly when x <= z and y <= z. *)
Lemma max_leE x y z : (Num.max x y <= z) = (x <= z) && (y <= z).
Proof.
by case: (leP x y) => xy; apply/idP/andP => [zle|[]//]; split=> //;
  apply: le_trans zle => //; apply: ltW.
Qed.

(* x is at most max(x, y). *)
Lemma le_max_left x y : x <= Num.max x y.
Proof. by case: (leP x y). Qed.

(* y is at most max(x, y). *)
Lemma le_max_right x y : y <= Num.max x y.
Proof. by case: (leP x y) => // /ltW. Qed.

(* z <= min(x, y) exactly when z <= x and z <= y. *)
Lemma le_minE x y z : (z <= Num.min x y) = (z <= x) && (z <= y).
Proof.
by case: (leP x y) => xy; apply/idP/andP => [zle|[]//]; split=> //;
  apply: (le_trans zle) => //; apply: ltW.
Qed.

(* x / 2 is nonnegative if x is. *)
Lemma half_ge0 x : 0 <= x -> 0 <= x / 2%:R.
Proof. by move=> x0; rewrite divr_ge0 // ler0n. Qed.

(* x / 2 <= y / 2 exactly when x <= y. *)
Lemma le_half x y : (x / 2%:R <= y / 2%:R) = (x <= y).
Proof.
apply/idP/idP => xy; last by rewrite -subr_ge0 -mulrBl half_ge0 ?subr_ge0.
by have := le_add xy xy; rewrite -!splitr.
Qed.

(* (x + x) / 2 = x. *)
Lemma half_double x : (x + x) / 2%:R = x.
Proof. by rewrite mulrDl -splitr. Qed.

(* x / 2 = y exactly when x = y + y. *)
Lemma half_eq x y : (x / 2%:R == y) = (x == y + y).
Proof.
apply/eqP/eqP => [<-|->]; [exact: splitr | exact: half_double].
Qed.

End OrderedField.

Section BigMax.

Variables (R : realFieldType) (I : finType).
Implicit Type F : I -> R.

(* Each F i is at most the maximum of 0 and all values of F. *)
Lemma le_bigmax0 F i : F i <= \big[Num.max/0]_j F j.
Proof.
have: i \in index_enum I by rewrite mem_index_enum.
elim: (index_enum I) => // j r IHr; rewrite in_cons big_cons.
case/orP => [/eqP ->|/IHr le_r]; first exact: le_max_left.
exact: le_trans le_r (le_max_right _ _).
Qed.

(* The maximum of 0 and all values of F is nonnegative. *)
Lemma bigmax0_ge0 F : 0 <= \big[Num.max/0]_j F j.
Proof.
elim: (index_enum I) => [|j r IHr]; first by rewrite big_nil.
by rewrite big_cons; apply: le_trans IHr (le_max_right _ _).
Qed.

(* A nonnegative upper bound of all F i bounds their maximum. *)
Lemma bigmax0_le F c : 0 <= c -> (forall i, F i <= c) -> \big[Num.max/0]_j F j <= c.
Proof.
move=> c0 Fc; elim: (index_enum I) => [|j r IHr]; first by rewrite big_nil.
by rewrite big_cons max_leE Fc.
Qed.

(* The maximum is 0 or one of the values of F. *)
Lemma bigmax0_attained F :
  \big[Num.max/0]_j F j = 0 \/ exists i, \big[Num.max/0]_j F j = F i.
Proof.
elim: (index_enum I) => [|j r IHr]; first by left; rewrite big_nil.
rewrite big_cons; case: (leP (F j) (\big[Num.max/0]_(i <- r) F i)) => _ //.
by right; exists j.
Qed.

(* The minimum of 1 and all values of F is at most each F i. *)
Lemma bigmin1_le F i : \big[Num.min/1]_j F j <= F i.
Proof.
have: i \in index_enum I by rewrite mem_index_enum.
elim: (index_enum I) => // j r IHr; rewrite in_cons big_cons.
have := lexx (Num.min (F j) (\big[Num.min/1]_(k <- r) F k)).
rewrite {1}le_minE => /andP[le_j le_r].
by case/orP => [/eqP -> //|/IHr]; apply: le_trans.
Qed.

(* A lower bound of 1 and all F i bounds their minimum from below. *)
Lemma le_bigmin1 F c : c <= 1 -> (forall i, c <= F i) -> c <= \big[Num.min/1]_j F j.
Proof.
move=> c1 cF; elim: (index_enum I) => [|j r IHr]; first by rewrite big_nil.
by rewrite big_cons le_minE cF.
Qed.

(* On a nonempty finite type F has a least value. *)
Lemma exists_min F (i0 : I) : exists m, forall i, F m <= F i.
Proof.
suff [m le_m] : exists m, forall i, i \in index_enum I -> F m <= F i.
  by exists m => i; apply: le_m; rewrite mem_index_enum.
elim: (index_enum I) => [|j r [m le_m]]; first by exists i0.
have [le_jm|/ltW le_mj] := leP (F j) (F m); [exists j | exists m] => i.
  by rewrite in_cons => /orP[/eqP ->//|/le_m]; apply: le_trans.
by rewrite in_cons => /orP[/eqP ->//|/le_m].
Qed.

End BigMax.
