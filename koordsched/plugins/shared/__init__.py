"""Code that several plugins share: matching, counts of pods, volumes, the search for victims."""
