"""What runs for gangs beside scheduling, while this scheduler leads: the status of PodGroups (coscheduling spec 3.12).

`loops` runs it; `members` counts the pods of a gang, `finished` has those that are over, which the scheduler itself
does not watch; `status` says what follows for the PodGroup.
"""
