//! Blocks as they are given: checked by themselves, before any account is looked at.

use std::collections::HashSet;

/// The most money that a ledger may hold, and the largest sum, floor or gas: so far from the ends of 64 bits that no
/// number of threads can take a balance past them before it notices.
pub const MOST_MONEY: u64 = 1 << 56;
/// The most orders of a block.
pub const MOST_ORDERS: usize = 1 << 24;
/// The most accounts that one order takes from, or gives to.
const MOST_LEGS: usize = 255;

/// A sum from one account to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// The caller's number for it, unlike those of its block; 0 for none.
    pub id: u64,
    /// Who sends.
    pub from: u64,
    /// Who receives.
    pub to: u64,
    /// How much.
    pub amount: u64,
    /// What the sender pays besides, to nobody; 0 under [`SmallCoin`](super::Profile::SmallCoin).
    pub gas: u64,
}

/// Sums from several accounts to several: all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Movement {
    /// The caller's number for it, unlike those of its block; 0 for none.
    pub id: u64,
    /// From whom, and how much; taken before anything is given.
    pub takes: Vec<(u64, u64)>,
    /// To whom, and how much; in sum no more than is taken.
    pub gives: Vec<(u64, u64)>,
    /// Below this no account that is taken from may fall.
    pub floor: i64,
}

/// Orders to execute as if one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub(super) orders: Listed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    Transfers(Vec<Transfer>),
    Movements(Vec<Movement>),
}

/// What no ledger takes, by the order's place in the block, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// Two orders have the same number.
    #[error("order {order} has the id {id} of an earlier one: leave one out, or give 0 for no id")]
    Twice {
        /// The later one.
        order: usize,
        /// Their number.
        id: u64,
    },
    /// A sum is too large.
    #[error("order {order} is about {sum}: sums go from 0 to {MOST_MONEY}")]
    Sum {
        /// Which.
        order: usize,
        /// How much.
        sum: u64,
    },
    /// A floor is out of bounds.
    #[error("order {order} has the floor {floor}: floors go from -{MOST_MONEY} to {MOST_MONEY}")]
    Floor {
        /// Which.
        order: usize,
        /// The requested item.
        floor: i64,
    },
    /// More is given than is taken.
    #[error("order {order} gives {given} and takes {taken}: it may give no more than it takes")]
    Made {
        /// Which.
        order: usize,
        /// In sum.
        given: u64,
        /// In sum.
        taken: u64,
    },
    /// An order has too many accounts, or takes from none.
    #[error(
        "order {order} takes from {takes} accounts and gives to {gives}: 1 to 255, and at most 255"
    )]
    Legs {
        /// Which.
        order: usize,
        /// Accounts taken from.
        takes: usize,
        /// Accounts given to.
        gives: usize,
    },
    /// A block is too long.
    #[error("{orders} orders: a block has at most 16777216")]
    Long {
        /// How many.
        orders: usize,
    },
}

impl Block {
    /// A block of transfers.
    ///
    /// # Errors
    /// A sum or gas beyond [`MOST_MONEY`], an id that another has.
    pub fn of_transfers(transfers: Vec<Transfer>) -> Result<Block, BlockError> {
        check_ids(transfers.len(), transfers.iter().map(|transfer| transfer.id))?;
        for (order, transfer) in transfers.iter().enumerate() {
            check_sum(order, transfer.amount)?;
            check_sum(order, transfer.gas)?;
        }
        Ok(Block { orders: Listed::Transfers(transfers) })
    }

    /// A block of movements.
    ///
    /// # Errors
    /// A sum or floor beyond [`MOST_MONEY`], more given than taken, too many accounts, an id that another has.
    pub fn of_movements(movements: Vec<Movement>) -> Result<Block, BlockError> {
        check_ids(movements.len(), movements.iter().map(|movement| movement.id))?;
        for (order, movement) in movements.iter().enumerate() {
            let (takes, gives) = (movement.takes.len(), movement.gives.len());
            if !(1..=MOST_LEGS).contains(&takes) || gives > MOST_LEGS {
                return Err(BlockError::Legs { order, takes, gives });
            }
            let sum = |legs: &[(u64, u64)]| {
                let sum = legs.iter().try_fold(0u64, |sum, (_, leg)| {
                    check_sum(order, *leg)?;
                    Ok(sum + leg)
                })?;
                check_sum(order, sum)
            };
            let (taken, given) = (sum(&movement.takes)?, sum(&movement.gives)?);
            if given > taken {
                return Err(BlockError::Made { order, given, taken });
            }
            if movement.floor.unsigned_abs() > MOST_MONEY {
                return Err(BlockError::Floor { order, floor: movement.floor });
            }
        }
        Ok(Block { orders: Listed::Movements(movements) })
    }

    /// The lowest floor of its orders, and whose it is.
    pub(super) fn lowest_floor(&self) -> Option<(usize, i64)> {
        let Listed::Movements(movements) = &self.orders else { return None };
        let floors = movements.iter().map(|movement| movement.floor).enumerate();
        floors.min_by_key(|(_, floor)| *floor)
    }

    /// Orders in it.
    pub fn len(&self) -> usize {
        match &self.orders {
            Listed::Transfers(transfers) => transfers.len(),
            Listed::Movements(movements) => movements.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn check_sum(order: usize, sum: u64) -> Result<u64, BlockError> {
    if sum <= MOST_MONEY { Ok(sum) } else { Err(BlockError::Sum { order, sum }) }
}

fn check_ids(orders: usize, ids: impl Iterator<Item = u64>) -> Result<(), BlockError> {
    if orders > MOST_ORDERS {
        return Err(BlockError::Long { orders });
    }
    let mut met = HashSet::new();
    for (order, id) in ids.enumerate() {
        if id != 0 && !met.insert(id) {
            return Err(BlockError::Twice { order, id });
        }
    }
    Ok(())
}
