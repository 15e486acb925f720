"""Tests of LoadAwareScheduling: nodes by what they really use."""
