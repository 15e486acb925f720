"""Where the objects of workloads are created."""

import pytest

from bench.api import collection
from bench.workloads import load


def test_of_two_kinds_of_the_same_name_the_version_decides():
    def path(version):
        return collection({"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "g", "namespace": "a"}})

    assert path("scheduling.sigs.k8s.io/v1alpha1") == "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/a/podgroups"
    assert path("scheduling.k8s.io/v1alpha2") == "/apis/scheduling.k8s.io/v1alpha2/namespaces/a/podgroups"


WITH_OBJECTS = {name: workload for name, workload in load().workloads.items() if workload.objects}


@pytest.mark.parametrize("workload", WITH_OBJECTS.values(), ids=WITH_OBJECTS)
def test_every_object_of_the_workloads_has_a_path(workload):
    for group in workload.objects:
        assert collection(group.manifest).startswith("/api")
