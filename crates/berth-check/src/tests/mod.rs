//! Every rule, broken once by hand and kept once by hand.

mod build;
mod plans;
mod reservations;
mod rooms;
mod settled;
mod shares;
mod starts;
mod states;
mod taking;
