"""Kubernetes' protobuf encoding, read into the wire types."""
