//! `terrace doctor`: what this machine offers, what is missing, and what would enable it.
