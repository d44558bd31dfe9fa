//! `terrace probe`: what every memory of this machine costs.
