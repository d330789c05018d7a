(* Every theorem in full, each a restatement of one in the other files, and the
   axioms it rests on. This is the file to read: with definitions.v it says what
   has been proved. R is any ordered field (the rationals, the reals), n >= 0 the
   number of tokens, which the comments call N. *)
From mathcomp Require Import all_ssreflect all_algebra.
From dobrushin_proof Require compat kappa theorem product doeblin robustness tight examples.
From dobrushin_proof Require Import definitions.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Statements.

Variables (R : realFieldType) (n : nat).
Implicit Types (A B : 'M[R]_n) (i j k l : 'I_n) (s : seq 'M[R]_n) (v : 'rV[R]_n).

(* 0 <= kappa(A) <= 1. *)
Theorem kappa_between_0_and_1 A : stochastic A -> 0 <= kappa A <= 1.
Proof. by move=> sA; rewrite kappa.kappa_ge0 kappa.kappa_le1. Qed.

(* For N >= 2, kappa(A) is the maximum of TV_ij(A) over pairs of distinct rows. *)
Theorem kappa_is_max A : (1 < n)%N ->
  (forall i j, tv A i j <= kappa A) /\
  (exists i j, i != j /\ tv A i j = kappa A).
Proof. by move=> n_gt1; split; [exact: kappa.tv_le_kappa | exact: kappa.kappa_attained]. Qed.

(* Pair identity: (1 + TV_ij(A)) / 2 - TV_ij(L(A)) = delta_ij for i != j. *)
Theorem pair_identity A i j : stochastic A -> i != j ->
  (1 + tv A i j) / 2%:R - tv (lazy A) i j = deficit A i j.
Proof. exact: theorem.pair_identity. Qed.

(* delta_ij >= 0, and delta_ij = 0 exactly when the pair is mutually self-dominant. *)
Theorem deficit_zero A i j :
  0 <= deficit A i j /\
  (deficit A i j = 0 <-> A j i <= A i i /\ A i j <= A j j).
Proof.
split; first exact: theorem.deficit_ge0.
by have := theorem.deficit_eq0 A i j; split=> [/eqP|/andP]; [rewrite H => /andP | rewrite -[_ && _]H => /eqP].
Qed.

(* The bound: kappa(L(A)) <= (1 + kappa(A)) / 2. *)
Theorem dobrushin_bound A : stochastic A ->
  kappa (lazy A) <= (1 + kappa A) / 2%:R.
Proof. exact: theorem.dobrushin_bound. Qed.

(* Condition (8): equality in the bound holds exactly when SOME pair of distinct
   rows attains kappa(A) and is mutually self-dominant. *)
Theorem equality_condition A : stochastic A ->
  kappa (lazy A) = (1 + kappa A) / 2%:R <->
  exists i j, [/\ i != j, tv A i j = kappa A & self_dominant A i j].
Proof. exact: theorem.equality_condition. Qed.

(* The gap is the minimum over pairs of (kappa(A) - TV_ij(A)) / 2 + delta_ij. *)
Theorem gap_is_min A : stochastic A -> (1 < n)%N ->
  (forall i j, i != j ->
    gap A <= (kappa A - tv A i j) / 2%:R + deficit A i j) /\
  (exists i j, i != j /\
    gap A = (kappa A - tv A i j) / 2%:R + deficit A i j).
Proof. exact: theorem.gap_is_min. Qed.

(* Submultiplicativity: kappa(A B) <= kappa(A) kappa(B). *)
Theorem kappa_submultiplicative A B : stochastic A -> stochastic B ->
  kappa (A *m B) <= kappa A * kappa B.
Proof. exact: product.kappa_submultiplicative. Qed.

(* The rollout bound, in its two steps. *)
Theorem rollout_bound s : (forall A, A \in s -> stochastic A) ->
  kappa (rollout s) <= \prod_(A <- s) kappa (lazy A) /\
  \prod_(A <- s) kappa (lazy A) <= \prod_(A <- s) ((1 + kappa A) / 2%:R).
Proof.
move=> s_stoch; split; first exact: product.rollout_lazy_bound.
rewrite big_seq [X in _ <= X]big_seq; apply: ler_prod => A /s_stoch sA.
by rewrite kappa.kappa_ge0 theorem.dobrushin_bound.
Qed.

(* Doeblin bounds: kappa(A) <= 1 - sum_k min_i A_ik <= 1 - N eps if all A_ik >= eps. *)
Theorem doeblin_bounds A eps : stochastic A -> (forall i k, eps <= A i k) ->
  kappa A <= 1 - \sum_k column_min A k /\
  1 - \sum_k column_min A k <= 1 - n%:R * eps.
Proof. by split; [exact: doeblin.doeblin_bound | exact: doeblin.doeblin_weaker]. Qed.

(* Robustness: if every row moves by at most eta in L1 norm, so do kappa and the gap. *)
Theorem kappa_gap_lipschitz eta A B : 0 <= eta ->
  (forall i, \sum_k `|A i k - B i k| <= eta) ->
  `|kappa A - kappa B| <= eta /\ `|gap A - gap B| <= eta.
Proof.
by move=> eta0 AB; split; [exact: robustness.kappa_lipschitz | exact: robustness.gap_lipschitz].
Qed.

(* A holding verdict is stable: a pair whose slack is at least eta, and whose TV
   beats by 2 eta every pair with less slack, makes condition (8) hold for B. *)
Theorem condition_stable eta A B i j : stochastic A -> stochastic B ->
  (forall i, \sum_k `|A i k - B i k| <= eta) ->
  i != j -> eta <= slack A i j ->
  (forall k l, k != l -> slack A k l < eta ->
    tv A k l + (eta + eta) <= tv A i j) ->
  condition8 B.
Proof. exact: robustness.condition_stable_stochastic. Qed.

(* A failing verdict is stable: a pair whose TV exceeds by more than 2 eta that of
   every pair with slack at least -eta makes condition (8) fail for B. *)
Theorem failure_stable eta A B i j : stochastic A -> stochastic B ->
  (forall i, \sum_k `|A i k - B i k| <= eta) ->
  (forall k l, k != l -> - eta <= slack A k l ->
    tv A k l + (eta + eta) < tv A i j) ->
  ~ condition8 B.
Proof. exact: robustness.failure_stable_stochastic. Qed.

(* The rollout bound is an equality if one v != 0 with sum 0 satisfies
   v A = kappa(A) v in every layer. *)
Theorem rollout_tight s v : (forall A, A \in s -> stochastic A) ->
  v != 0 -> \sum_k v 0 k = 0 ->
  (forall A, A \in s -> v *m A = kappa A *: v) ->
  kappa (rollout s) = \prod_(A <- s) ((1 + kappa A) / 2%:R).
Proof. exact: tight.rollout_tight. Qed.

(* In particular if one pair attains kappa(A), is self-dominant, and has rows that
   agree outside the columns i and j, in every layer. *)
Theorem rollout_tight_pair s i j : i != j ->
  (forall A, A \in s ->
    [/\ stochastic A, tv A i j = kappa A, self_dominant A i j
      & forall k, k != i -> k != j -> A i k = A j k]) ->
  kappa (rollout s) = \prod_(A <- s) ((1 + kappa A) / 2%:R).
Proof. exact: tight.rollout_tight_pair. Qed.

End Statements.

(* Two tokens: layers that all satisfy condition (8) make the rollout bound tight. *)
Theorem rollout_tight_two_tokens (R : realFieldType) (s : seq 'M[R]_2) :
  (forall A, A \in s -> stochastic A /\ condition8 A) ->
  kappa (rollout s) = \prod_(A <- s) ((1 + kappa A) / 2%:R).
Proof. exact: tight.rollout_tight_two_tokens. Qed.

(* Two tight layers whose rollout is strictly below the product bound. *)
Theorem rollout_strict :
  [/\ stochastic examples.layer_1 /\ stochastic examples.layer_2,
      condition8 examples.layer_1, condition8 examples.layer_2,
      kappa (rollout [:: examples.layer_1; examples.layer_2]) = 3%:R / 4%:R
    & \prod_(A <- [:: examples.layer_1; examples.layer_2])
        ((1 + kappa A) / 2%:R) = 1].
Proof.
have [[s1 s2] e1 e2 strict bound] := examples.rollout_strict.
by split=> //; exact/(theorem.equality_condition _).
Qed.

(* Two heads satisfy condition (8) and their mean does not. *)
Theorem tight_heads_loose_mean :
  [/\ stochastic examples.tight_head_1 /\ stochastic examples.tight_head_2,
      condition8 examples.tight_head_1, condition8 examples.tight_head_2
    & ~ condition8 (examples.mean examples.tight_head_1 examples.tight_head_2)].
Proof. exact: examples.tight_heads_loose_mean. Qed.

(* Two heads fail condition (8) and their mean satisfies it. *)
Theorem loose_heads_tight_mean :
  [/\ stochastic examples.loose_head_1 /\ stochastic examples.loose_head_2,
      ~ condition8 examples.loose_head_1, ~ condition8 examples.loose_head_2
    & condition8 (examples.mean examples.loose_head_1 examples.loose_head_2)].
Proof. exact: examples.loose_heads_tight_mean. Qed.

(* What each theorem rests on: "Closed under the global context" means no axiom. *)
Print Assumptions kappa_between_0_and_1.
Print Assumptions kappa_is_max.
Print Assumptions pair_identity.
Print Assumptions deficit_zero.
Print Assumptions dobrushin_bound.
Print Assumptions equality_condition.
Print Assumptions gap_is_min.
Print Assumptions kappa_submultiplicative.
Print Assumptions rollout_bound.
Print Assumptions doeblin_bounds.
Print Assumptions kappa_gap_lipschitz.
Print Assumptions condition_stable.
Print Assumptions failure_stable.
Print Assumptions rollout_tight.
Print Assumptions rollout_tight_pair.
Print Assumptions rollout_tight_two_tokens.
Print Assumptions rollout_strict.
Print Assumptions tight_heads_loose_mean.
Print Assumptions loose_heads_tight_mean.
