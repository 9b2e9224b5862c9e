//! x
pub mod baselines;
pub mod fgd;
pub mod openb;
pub mod random;
pub mod replay;
pub mod table;
