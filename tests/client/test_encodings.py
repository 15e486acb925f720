"""Whether objects are asked for in protobuf."""

import pytest

from koordsched.api import core
from koordsched.api.protobuf.fields import MEDIA_TYPE
from koordsched.client.encodings import protobuf_format
from koordsched.plugins.elasticquota.kinds import ElasticQuota


@pytest.mark.parametrize(
    ("path", "kind", "accept", "protobuf"),
    [
        ("/api/v1/pods", core.Pod, f"{MEDIA_TYPE},application/json", True),
        ("/api/v1/pods", core.Pod, "application/json", False),
        ("/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas", ElasticQuota, f"{MEDIA_TYPE},application/json", False),
    ],
    ids=["wanted", "not wanted", "custom resource"],
)
def test_kinds_that_have_such_a_form_come_in_it_where_it_is_wanted(path, kind, accept, protobuf):
    assert (protobuf_format(path, kind, accept) is not None) is protobuf
