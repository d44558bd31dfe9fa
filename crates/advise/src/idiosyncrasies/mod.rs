//! The eight tests of PMIdioBench (paper 001, 2.3), their causes (table 1) and recommendations.
