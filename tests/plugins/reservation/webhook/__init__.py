"""Tests of what is changed and refused at admission."""
