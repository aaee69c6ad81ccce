# data/
