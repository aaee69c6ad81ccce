# modulefiles/
