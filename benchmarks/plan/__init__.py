"""How right the plan is: remedies done in the simulated world, against what the plan said they would give."""
