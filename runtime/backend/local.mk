# backend/
