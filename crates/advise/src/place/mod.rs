//! `terrace place`: which structure on which memory (paper 001, 2.4: the EBR rule).
