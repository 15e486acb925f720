"""VolumeRestrictions: disks and claims that only one pod at a time can use."""
