"""What each command is called, which options it has and what its help says, by group; bodies import what they call."""
