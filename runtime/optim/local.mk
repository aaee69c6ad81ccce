# optim/
