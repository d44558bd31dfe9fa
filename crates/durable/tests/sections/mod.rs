//! Failure-atomic sections: what they promise without a crash, what they refuse, and what damage they
//! find. Crashes are explored in the room `experiments`.

mod behaviour;
mod damage;
mod list;
mod memory;
mod on_disk;
mod threads;
