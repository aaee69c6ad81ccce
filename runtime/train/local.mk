# train/
