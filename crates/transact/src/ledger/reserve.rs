//! Sums are reserved first, each at its account; if every reservation is covered by what the accounts had before the
//! block, everything is carried out. In the way of SPEEDEX, which Miller (section 4.7) compares with: three
//! atomic additions a transfer where withdrawals and deposits need two.
//!
//! SPEEDEX leaves out orders that are not covered. Here a block with such an order is executed one after another, so
//! that the result is that of block order.

use super::bank::{Plan, Task};
use super::fast::in_order;
use super::orders::{AHEAD, Among, Orders};
use super::sum::Sum;
use super::worker_pool::Meeting;
use crate::ledger::accounts::Field;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_memory::Memory;

/// A block on its way.
#[derive(Default)]
pub(super) struct Reserve {
    uncovered: AtomicBool,
}

impl<O: Orders, M: Memory> Plan<O, M> for Reserve {
    fn work(&self, task: &Task<O, M>, worker: usize, meeting: &Meeting, sum: &mut Sum) {
        let (orders, accounts) = (&task.orders, &*task.accounts);
        let range = meeting.part(worker, orders.len());
        for order in range.clone() {
            if order + AHEAD < orders.len() {
                orders.each_account(order + AHEAD, |slot| accounts.prefetch_slot(slot));
            }
            orders.each_take(order, |slot, amount, floor| {
                let reserved = accounts.add(slot, Field::Reserved, amount);
                if accounts.get(slot, Field::Balance) - reserved < floor {
                    self.uncovered.store(true, Relaxed);
                }
            });
            // Nobody reserves more than one order past the end, so that sums stay within 64 bits.
            if self.uncovered.load(Relaxed) {
                break;
            }
        }
        meeting.meet();
        if O::CONFIRMS {
            // Whoever has a higher floor than others may have come before them.
            for order in range.clone() {
                orders.each_take(order, |slot, _, floor| {
                    let reserved = accounts.get(slot, Field::Reserved);
                    if accounts.get(slot, Field::Balance) - reserved < floor {
                        self.uncovered.store(true, Relaxed);
                    }
                });
            }
            meeting.meet();
        }
        for order in range.clone() {
            orders.each_take(order, |slot, _, _| accounts.set(slot, Field::Reserved, 0));
        }
        if self.uncovered.load(Relaxed) {
            if worker == 0 {
                // Reservations are no part of what an order looks at.
                in_order(task, sum);
            }
            return;
        }
        let mut among = Among { accounts, sum };
        for order in range {
            let withdrew = orders.withdraw(order, &mut among);
            debug_assert!(withdrew, "what is reserved is there");
            orders.deposit(order, &mut among);
        }
    }
}
