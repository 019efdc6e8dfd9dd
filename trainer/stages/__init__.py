"""What the training stages share: the contract with the outside world, device choice, learner, supervised loop."""
