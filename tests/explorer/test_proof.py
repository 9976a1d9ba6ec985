"""Proofs in chunks: turns, certificates, and the same whether resumed or done anew."""

import pytest

from explorer.proof import FRONT, Proof, proof_after
from tests.explorer.small_studies import COST, RATE, enumerated, problem_of, study, with_limits

BASE = problem_of(study(quality={"no_worse_than": "bf16"}, search={"target_gap": 0.0}))
ONE, TWO = with_limits(BASE, objectives=(RATE,)), with_limits(BASE, objectives=(RATE, COST))


def finished(problem, chunks=200):
    proof = Proof(problem)
    while not proof.complete and proof.chunks_done < chunks:
        proof.advance()
    return proof


def stated(proof):
    return [{key: value for key, value in entry.items() if key != "wall_s"} for entry in proof.certificate()]


def test_a_proof_of_one_objective_has_one_entry_that_brackets_the_optimum():
    proof = finished(ONE)
    entry = proof.certificate()[0]
    best = -enumerated(ONE)
    assert len(proof.certificate()) == 1 and proof.complete and entry["complete"]
    assert entry["best"] == pytest.approx(best, rel=1e-9)
    assert entry["bound"] >= best * (1 - 1e-9) and entry["open_boxes"] == 0 and entry["wall_s"] > 0


def test_two_objectives_take_turns_with_their_front():
    proof = Proof(TWO)
    for _ in range(3):
        proof.advance()
    assert [entry["metric"] for entry in proof.certificate()] == [RATE.metric, COST.metric, FRONT]


def test_the_bounds_of_an_unfinished_proof_hold():
    proof = Proof(TWO)
    best = [-enumerated(with_limits(TWO, objectives=(RATE,))), enumerated(with_limits(TWO, objectives=(COST,)))]
    for _ in range(12):
        proof.advance()
        for entry in proof.certificate():
            if entry["metric"] == RATE.metric:
                assert entry["bound"] >= best[0] * (1 - 1e-9)
            if entry["metric"] == COST.metric:
                assert entry["bound"] <= best[1] * (1 + 1e-9)


def test_a_proof_resumed_or_begun_anew_is_the_same():
    kept, anew = with_limits(TWO), with_limits(TWO)
    for chunks in (1, 2, 5):
        resumed = proof_after(kept, chunks)
        assert stated(resumed) == stated(proof_after(with_limits(TWO), chunks))
    assert stated(proof_after(kept, 2)) == stated(proof_after(anew, 2))


def test_a_complete_proof_does_nothing_more():
    proof = finished(ONE)
    before = stated(proof)
    proof.advance()
    assert stated(proof) == before


def test_a_proof_without_a_feasible_design_has_no_incumbent_and_no_best():
    proof = finished(with_limits(TWO, unit_cost_usd=1.0))
    assert proof.complete and proof.incumbents() == [] and proof.fillers() == []
    assert all(entry["best"] is None for entry in proof.certificate())


def test_incumbents_and_fillers_lie_in_the_space():
    proof = Proof(TWO)
    for _ in range(4):
        proof.advance()
        for point, alternative in [*proof.incumbents(), *proof.fillers()]:
            assert (point >= 0).all() and (point < TWO.space.sizes).all()
            assert -1 <= alternative < TWO.scenarios[0].n_alternatives
