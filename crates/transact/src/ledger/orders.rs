//! What the orders of each profile do to accounts: once in parts, for threads that work on the same accounts, and
//! once as a whole, for who has its accounts alone.
//!
//! The parts (Miller, section 4.3): [`Orders::withdraw`] takes what an order needs, [`Orders::deposit`] gives it,
//! [`Orders::take_back`] undoes the first. A withdrawal that finds too little puts back what it took, so an order
//! either holds all that it needs or nothing; the paper leaves balances below zero until they are compensated.
//!
//! Why withdrawals before deposits suffice: what an account holds after all withdrawals of a block and none of its
//! deposits is the least that it holds at any moment of any serial execution. If every order of a cluster found
//! enough then, each would have found it in block order too. With floors that differ between orders the moment
//! matters: an order that was early saw what later ones had not taken yet. So where there are floors, every order
//! looks again after all withdrawals ([`Orders::confirm`]); the paper has no floors.

use super::block::{Block, Listed, Movement, Transfer};
use super::sum::Sum;
use super::{Profile, Status};
use crate::ledger::accounts::{Accounts, Field, Slot};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use terrace_memory::Memory;

/// Orders ahead of the one that is looked up, or worked on, whose accounts are asked for already.
pub(super) const AHEAD: usize = 8;

/// Words of accounts, wherever they are kept meanwhile, to be added to.
pub(super) trait Additions {
    fn add(&mut self, slot: Slot, field: Field, by: i64);
}

/// The same, to be read too: nobody else changes them meanwhile.
pub(super) trait Rows: Additions {
    fn balance(&mut self, slot: Slot) -> i64;
}

/// The accounts themselves, for the one thread that works on them.
pub(super) struct Alone<'a, M: Memory> {
    pub accounts: &'a Accounts<M>,
    pub sum: &'a mut Sum,
}

impl<M: Memory> Rows for Alone<'_, M> {
    #[inline(always)]
    fn balance(&mut self, slot: Slot) -> i64 {
        self.accounts.get(slot, Field::Balance)
    }
}

impl<M: Memory> Additions for Alone<'_, M> {
    #[inline(always)]
    fn add(&mut self, slot: Slot, field: Field, by: i64) {
        self.accounts.add_alone(slot, field, by);
        self.sum.change(self.accounts.number(slot), field, by);
    }
}

/// The accounts themselves, among other threads.
pub(super) struct Among<'a, M: Memory> {
    pub accounts: &'a Accounts<M>,
    pub sum: &'a mut Sum,
}

impl<M: Memory> Additions for Among<'_, M> {
    #[inline(always)]
    fn add(&mut self, slot: Slot, field: Field, by: i64) {
        self.accounts.add(slot, field, by);
        self.sum.change(self.accounts.number(slot), field, by);
    }
}

impl<M: Memory> Among<'_, M> {
    /// Takes so much if that leaves no less than `floor`; otherwise nothing. The look before keeps a balance from
    /// falling further than one sum a thread.
    #[inline(always)]
    fn take(&mut self, slot: Slot, amount: i64, floor: i64) -> bool {
        if self.accounts.get(slot, Field::Balance) - amount < floor {
            return false;
        }
        if self.accounts.add(slot, Field::Balance, -amount) < floor {
            self.accounts.add(slot, Field::Balance, amount);
            return false;
        }
        self.sum.change(self.accounts.number(slot), Field::Balance, -amount);
        true
    }
}

/// The orders of a block whose accounts are being found, or have been.
pub(super) trait Orders: Send + Sync + 'static {
    /// Whether orders have to look again after all withdrawals.
    const CONFIRMS: bool = false;

    fn of(block: Block) -> Self;

    fn len(&self) -> usize;

    /// Asks for what says where the accounts of an order are.
    fn foresee<M: Memory>(&self, order: usize, accounts: &Accounts<M>);

    /// Asks for its accounts, which then only have to be looked at.
    fn locate<M: Memory>(&self, order: usize, accounts: &Accounts<M>);

    /// Finds its accounts; or the number of one that there is not.
    fn find<M: Memory>(&self, order: usize, accounts: &Accounts<M>) -> Result<(), u64>;

    /// Its accounts, one perhaps several times.
    fn each_account(&self, order: usize, visit: impl FnMut(Slot));

    /// The whole order, its accounts being this thread's.
    fn run<R: Rows>(&self, order: usize, rows: &mut R) -> Status;

    /// Takes what the order needs; whether it has it.
    fn withdraw<M: Memory>(&self, order: usize, among: &mut Among<'_, M>) -> bool;

    /// Whether what is left after all withdrawals is still enough for an order that has withdrawn.
    fn confirm<M: Memory>(&self, _order: usize, _accounts: &Accounts<M>) -> bool {
        true
    }

    /// Gives what the order has.
    fn deposit<M: Memory>(&self, order: usize, among: &mut Among<'_, M>);

    /// Puts back what a withdrawal took.
    fn take_back<A: Additions>(&self, order: usize, accounts: &mut A);

    /// What it takes of which accounts, for who reserves it, and the floor that must be left.
    fn each_take(&self, order: usize, visit: impl FnMut(Slot, i64, i64));
}

/// The account of this number, which was located in a line.
#[inline(always)]
fn found<M: Memory>(accounts: &Accounts<M>, number: u64, located: Slot) -> Result<Slot, u64> {
    match accounts.holds(located, number) {
        true => Ok(located),
        false => accounts.find(number).ok_or(number),
    }
}

/// What is located where there is no account.
const NOWHERE: Slot = Slot::of_line(u32::MAX);

/// The lines of accounts, found by several threads. An order's are ready once all of them have met.
struct LocatedAccounts(Vec<AtomicU64>);

impl LocatedAccounts {
    fn new(pairs: usize) -> LocatedAccounts {
        LocatedAccounts((0..pairs).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline(always)]
    fn set(&self, at: usize, from: Slot, to: Slot) {
        self.0[at].store(u64::from(from.line()) << 32 | u64::from(to.line()), Relaxed);
    }

    #[inline(always)]
    fn get(&self, at: usize) -> (Slot, Slot) {
        let lines = self.0[at].load(Relaxed);
        (Slot::of_line((lines >> 32) as u32), Slot::of_line(lines as u32))
    }
}

/// Transfers between two accounts each; `PAID` ones cost gas and are counted.
pub(super) struct Coins<const PAID: bool> {
    transfers: Vec<Transfer>,
    found: LocatedAccounts,
}

impl<const PAID: bool> Orders for Coins<PAID> {
    fn of(block: Block) -> Self {
        let Listed::Transfers(transfers) = block.orders else {
            unreachable!("the bank has looked at what the block is of")
        };
        Coins { found: LocatedAccounts::new(transfers.len()), transfers }
    }

    fn len(&self) -> usize {
        self.transfers.len()
    }

    #[inline(always)]
    fn foresee<M: Memory>(&self, order: usize, accounts: &Accounts<M>) {
        accounts.prefetch(self.transfers[order].from);
        accounts.prefetch(self.transfers[order].to);
    }

    #[inline(always)]
    fn locate<M: Memory>(&self, order: usize, accounts: &Accounts<M>) {
        let Transfer { from, to, .. } = self.transfers[order];
        let locate = |number| accounts.locate(number).unwrap_or(NOWHERE);
        self.found.set(order, locate(from), locate(to));
    }

    #[inline(always)]
    fn find<M: Memory>(&self, order: usize, accounts: &Accounts<M>) -> Result<(), u64> {
        let Transfer { from, to, .. } = self.transfers[order];
        let located = self.found.get(order);
        let is = (found(accounts, from, located.0)?, found(accounts, to, located.1)?);
        if is != located {
            self.found.set(order, is.0, is.1);
        }
        Ok(())
    }

    #[inline(always)]
    fn each_account(&self, order: usize, mut visit: impl FnMut(Slot)) {
        let (from, to) = self.found.get(order);
        visit(from);
        visit(to);
    }

    #[inline(always)]
    fn run<R: Rows>(&self, order: usize, rows: &mut R) -> Status {
        let (transfer, (from, to)) = (&self.transfers[order], self.found.get(order));
        let (amount, gas) = (transfer.amount as i64, transfer.gas as i64);
        let balance = rows.balance(from);
        if PAID {
            if balance < gas {
                return Status::Refused;
            }
            rows.add(from, Field::Turns, 1);
            if balance < gas + amount {
                rows.add(from, Field::Balance, -gas);
                return Status::GasOnly;
            }
            rows.add(from, Field::Sent, 1);
            rows.add(to, Field::Received, 1);
        } else if balance < amount {
            return Status::Refused;
        }
        rows.add(from, Field::Balance, -(gas + amount));
        rows.add(to, Field::Balance, amount);
        Status::Done
    }

    #[inline(always)]
    fn withdraw<M: Memory>(&self, order: usize, among: &mut Among<'_, M>) -> bool {
        let (transfer, (from, _)) = (&self.transfers[order], self.found.get(order));
        let taken = among.take(from, (transfer.amount + transfer.gas) as i64, 0);
        if PAID && taken {
            among.add(from, Field::Turns, 1);
            among.add(from, Field::Sent, 1);
        }
        taken
    }

    #[inline(always)]
    fn deposit<M: Memory>(&self, order: usize, among: &mut Among<'_, M>) {
        let (transfer, (_, to)) = (&self.transfers[order], self.found.get(order));
        among.add(to, Field::Balance, transfer.amount as i64);
        if PAID {
            among.add(to, Field::Received, 1);
        }
    }

    #[inline(always)]
    fn take_back<A: Additions>(&self, order: usize, accounts: &mut A) {
        let (transfer, (from, _)) = (&self.transfers[order], self.found.get(order));
        accounts.add(from, Field::Balance, (transfer.amount + transfer.gas) as i64);
        if PAID {
            accounts.add(from, Field::Turns, -1);
            accounts.add(from, Field::Sent, -1);
        }
    }

    #[inline(always)]
    fn each_take(&self, order: usize, mut visit: impl FnMut(Slot, i64, i64)) {
        let transfer = &self.transfers[order];
        visit(self.found.get(order).0, (transfer.amount + transfer.gas) as i64, 0);
    }
}

/// Movements between many accounts each.
pub(super) struct Moves {
    floors: Vec<i64>,
    /// Where each order's legs begin; those that take, then those that give. One more than there are orders.
    starts: Vec<(u32, u32)>,
    /// Numbers and sums.
    legs: Vec<(u64, u64)>,
    lines: Vec<AtomicU32>,
}

impl Moves {
    fn takes(&self, order: usize) -> std::ops::Range<usize> {
        self.starts[order].0 as usize..self.starts[order].1 as usize
    }

    fn gives(&self, order: usize) -> std::ops::Range<usize> {
        self.starts[order].1 as usize..self.starts[order + 1].0 as usize
    }

    fn legs_of(&self, order: usize) -> std::ops::Range<usize> {
        self.takes(order).start..self.gives(order).end
    }

    /// The account of a leg, and its sum.
    fn leg(&self, leg: usize) -> (Slot, i64) {
        (Slot::of_line(self.lines[leg].load(Relaxed)), self.legs[leg].1 as i64)
    }
}

impl Orders for Moves {
    const CONFIRMS: bool = true;

    fn of(block: Block) -> Self {
        let Listed::Movements(movements) = block.orders else {
            unreachable!("the bank has looked at what the block is of")
        };
        let (mut starts, mut legs) = (Vec::with_capacity(movements.len() + 1), Vec::new());
        for Movement { takes, gives, .. } in &movements {
            let start = legs.len() as u32;
            legs.extend_from_slice(takes);
            starts.push((start, legs.len() as u32));
            legs.extend_from_slice(gives);
        }
        starts.push((legs.len() as u32, legs.len() as u32));
        let floors = movements.iter().map(|movement| movement.floor).collect();
        let lines = legs.iter().map(|_| AtomicU32::new(0)).collect();
        Moves { floors, starts, legs, lines }
    }

    fn len(&self) -> usize {
        self.floors.len()
    }

    fn foresee<M: Memory>(&self, order: usize, accounts: &Accounts<M>) {
        self.legs[self.legs_of(order)].iter().for_each(|(number, _)| accounts.prefetch(*number));
    }

    fn locate<M: Memory>(&self, order: usize, accounts: &Accounts<M>) {
        for leg in self.legs_of(order) {
            let located = accounts.locate(self.legs[leg].0).unwrap_or(NOWHERE);
            self.lines[leg].store(located.line(), Relaxed);
        }
    }

    fn find<M: Memory>(&self, order: usize, accounts: &Accounts<M>) -> Result<(), u64> {
        for leg in self.legs_of(order) {
            let (located, _) = self.leg(leg);
            let is = found(accounts, self.legs[leg].0, located)?;
            self.lines[leg].store(is.line(), Relaxed);
        }
        Ok(())
    }

    fn each_account(&self, order: usize, mut visit: impl FnMut(Slot)) {
        self.legs_of(order).for_each(|leg| visit(self.leg(leg).0));
    }

    fn run<R: Rows>(&self, order: usize, rows: &mut R) -> Status {
        let floor = self.floors[order];
        for leg in self.takes(order) {
            let (slot, sum) = self.leg(leg);
            if rows.balance(slot) - sum < floor {
                for taken in self.takes(order).start..leg {
                    let (slot, sum) = self.leg(taken);
                    rows.add(slot, Field::Balance, sum);
                }
                return Status::Refused;
            }
            rows.add(slot, Field::Balance, -sum);
        }
        for leg in self.gives(order) {
            let (slot, sum) = self.leg(leg);
            rows.add(slot, Field::Balance, sum);
        }
        Status::Done
    }

    fn withdraw<M: Memory>(&self, order: usize, among: &mut Among<'_, M>) -> bool {
        let floor = self.floors[order];
        for leg in self.takes(order) {
            let (slot, sum) = self.leg(leg);
            if !among.take(slot, sum, floor) {
                for taken in self.takes(order).start..leg {
                    let (slot, sum) = self.leg(taken);
                    among.add(slot, Field::Balance, sum);
                }
                return false;
            }
        }
        true
    }

    fn confirm<M: Memory>(&self, order: usize, accounts: &Accounts<M>) -> bool {
        let floor = self.floors[order];
        self.takes(order).all(|leg| accounts.get(self.leg(leg).0, Field::Balance) >= floor)
    }

    fn deposit<M: Memory>(&self, order: usize, among: &mut Among<'_, M>) {
        for leg in self.gives(order) {
            let (slot, sum) = self.leg(leg);
            among.add(slot, Field::Balance, sum);
        }
    }

    fn take_back<A: Additions>(&self, order: usize, accounts: &mut A) {
        for leg in self.takes(order) {
            let (slot, sum) = self.leg(leg);
            accounts.add(slot, Field::Balance, sum);
        }
    }

    fn each_take(&self, order: usize, mut visit: impl FnMut(Slot, i64, i64)) {
        for leg in self.takes(order) {
            let (slot, sum) = self.leg(leg);
            visit(slot, sum, self.floors[order]);
        }
    }
}

/// Whether a ledger of this profile takes this block; or what it would take.
pub(super) fn suits(profile: Profile, block: &Block) -> Result<(), &'static str> {
    match (profile, &block.orders) {
        (Profile::Movements, Listed::Movements(_))
        | (Profile::SmallCoinPlus, Listed::Transfers(_)) => Ok(()),
        (Profile::SmallCoin, Listed::Transfers(transfers)) => {
            match transfers.iter().all(|transfer| transfer.gas == 0) {
                true => Ok(()),
                false => Err("transfers without gas"),
            }
        }
        (Profile::Movements, _) => Err("movements"),
        (_, _) => Err("transfers"),
    }
}
