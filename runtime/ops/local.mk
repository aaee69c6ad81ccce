# ops/
