"""The guard of the rebuild: what the landed code gave, compared with what the code gives now."""
