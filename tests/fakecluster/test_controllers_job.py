import pytest

from koordsched.fakecluster.controllers.jobindexes import format_indexes, parse_indexes
from tests.fakecluster.timeline import Cluster, condition, pod_template, workload

TRACKING = "batch.kubernetes.io/job-tracking"


def job(duration="10s", exit_code=None, restart="Never", **spec):
    annotations = {"koordsched.io/run-duration": duration}
    if exit_code is not None:
        annotations["koordsched.io/exit-code"] = str(exit_code)
    template = pod_template({"app": "work"}, annotations=annotations, restartPolicy=restart)
    return workload("Job", "work", template=template, **spec)


def status_of(cluster):
    return cluster.get("jobs", "work").get("status", {})


def done(cluster, kind="Complete"):
    found = condition(cluster.get("jobs", "work"), kind)
    return found is not None and found[0] == "True"


def active(cluster):
    return [pod for pod in cluster.pods() if pod["status"]["phase"] in ("Pending", "Running")]


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_completions_in_waves(mode):
    cluster = Cluster()
    cluster.create(job(parallelism=3, completions=7, completionMode=mode))
    most = 0
    while not done(cluster):
        cluster.run(0.5)
        most = max(most, len(active(cluster)))
        assert cluster.time.now() < 1893456000 + 100
    status = status_of(cluster)
    assert most == 3
    assert status["succeeded"] == 7
    assert status.get("failed", 0) == 0
    assert status.get("active", 0) == 0
    assert status["startTime"] < status["completionTime"]
    assert condition(cluster.get("jobs", "work"), "SuccessCriteriaMet") == ("True", "CompletionsReached")
    assert all(TRACKING not in pod["metadata"].get("finalizers", []) for pod in cluster.pods())
    if mode == "Indexed":
        assert status["completedIndexes"] == "0-6"
        label = "batch.kubernetes.io/job-completion-index"
        assert sorted(pod["metadata"]["labels"][label] for pod in cluster.pods()) == list("0123456")


def test_a_work_queue_ends_with_its_first_success():
    cluster = Cluster()
    cluster.create(job(parallelism=3))
    # completions default to 1 unless parallelism alone is given.
    cluster.until(lambda: done(cluster))
    assert status_of(cluster)["succeeded"] >= 1


def test_failures_back_off_and_end_the_job():
    cluster = Cluster()
    cluster.create(job(duration="1s", exit_code=3, backoffLimit=2))
    took = cluster.until(lambda: done(cluster, "Failed"))
    assert condition(cluster.get("jobs", "work"), "Failed") == ("True", "BackoffLimitExceeded")
    assert status_of(cluster)["failed"] == 3
    # Two waits of 10 and 20 s lie between three runs.
    assert 32 <= took <= 45
    assert not active(cluster)


def test_restarts_in_place_count_towards_the_limit():
    cluster = Cluster()
    cluster.create(job(duration="1s", exit_code=1, restart="OnFailure", backoffLimit=2))
    cluster.until(lambda: done(cluster, "Failed"), limit=200)
    assert condition(cluster.get("jobs", "work"), "Failed") == ("True", "BackoffLimitExceeded")
    cluster.run(10)
    assert not active(cluster)


def test_a_deadline_ends_the_job():
    cluster = Cluster()
    cluster.create(job(duration="1h", activeDeadlineSeconds=30, parallelism=2, completions=2))
    cluster.run(29)
    assert status_of(cluster)["active"] == 2
    cluster.run(10)
    assert condition(cluster.get("jobs", "work"), "Failed") == ("True", "DeadlineExceeded")
    assert not active(cluster)


def test_a_deleted_pod_is_replaced():
    cluster = Cluster()
    cluster.create(job(duration="20s"))
    cluster.run(5)
    [pod] = cluster.pods()
    cluster.delete("pods", pod["metadata"]["name"])
    cluster.run(15)
    assert pod["metadata"]["uid"] not in {other["metadata"]["uid"] for other in cluster.pods()}
    cluster.until(lambda: done(cluster))
    assert (status_of(cluster)["succeeded"], status_of(cluster)["failed"]) == (1, 1)


def test_results_survive_the_deletion_of_finished_pods():
    cluster = Cluster()
    cluster.create(job(duration="1s", parallelism=1, completions=3))
    while not done(cluster):
        cluster.run(0.25)
        for pod in cluster.pods():
            if pod["status"]["phase"] == "Succeeded" and not pod["metadata"].get("deletionTimestamp"):
                cluster.delete("pods", pod["metadata"]["name"])
        assert cluster.time.now() < 1893456000 + 100
    assert status_of(cluster)["succeeded"] == 3
    cluster.run(5)
    assert not cluster.pods()


def test_suspend_and_resume():
    cluster = Cluster()
    cluster.create(job(duration="20s", suspend=True))
    cluster.run(5)
    assert not cluster.pods()
    assert condition(cluster.get("jobs", "work"), "Suspended") == ("True", "JobSuspended")
    cluster.patch("jobs", "work", {"spec": {"suspend": False}})
    cluster.run(5)
    assert status_of(cluster)["active"] == 1
    cluster.patch("jobs", "work", {"spec": {"suspend": True}})
    cluster.run(5)
    assert not cluster.pods()
    assert status_of(cluster).get("failed", 0) == 0
    cluster.patch("jobs", "work", {"spec": {"suspend": False}})
    cluster.until(lambda: done(cluster))
    assert condition(cluster.get("jobs", "work"), "Suspended") == ("False", "JobResumed")


def test_finished_jobs_go_after_their_time_to_live():
    cluster = Cluster()
    cluster.create(job(duration="1s", ttlSecondsAfterFinished=30))
    cluster.until(lambda: done(cluster))
    cluster.run(25)
    assert cluster.exists("jobs", "work")
    cluster.run(10)
    assert not cluster.exists("jobs", "work")
    assert not cluster.pods()


def test_deleting_a_job_takes_its_pods():
    cluster = Cluster()
    cluster.create(job(duration="1h", parallelism=4, completions=4))
    cluster.run(5)
    cluster.delete("jobs", "work", propagation="Background")
    cluster.run(20)
    assert not cluster.pods()


@pytest.mark.parametrize(
    "indexes, text",
    [([], ""), ([0], "0"), ([0, 1], "0,1"), ([0, 1, 2], "0-2"), ([5, 1, 3, 4, 9], "1,3-5,9"), ([7, 8, 0], "0,7,8")],
)
def test_indexes(indexes, text):
    assert format_indexes(indexes) == text
    assert parse_indexes(text, 10) == set(indexes)


@pytest.mark.parametrize("text, expected", [("0-99999999999", {0, 1, 2}), ("x,1,-3,2-y", {1}), ("2,7", {2})])
def test_indexes_that_make_no_sense_are_left_out(text, expected):
    assert parse_indexes(text, 3) == expected
