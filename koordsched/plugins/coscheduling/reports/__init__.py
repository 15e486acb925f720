"""What endpoints and commands show of gangs: `upstream` as koord-scheduler does, `report` and `tables` for people."""
