//! Accounts, and the blocks that are executed on them: a ledger without its durability.

use super::auto::Forecast;
use super::block::{Block, MOST_MONEY};
use super::dag::{Dag, Pipe, Stage};
use super::fast::{Fast, in_order};
use super::orders::{AHEAD, Coins, Moves, Orders, suits};
use super::reserve::Reserve;
use super::stm::BlockStm;
use super::strife::Strife;
use super::sum::Sum;
use super::worker_pool::{Job, Meeting, WorkerPool};
use super::{LedgerEngine, Profile, Status};
use crate::ledger::accounts::{Account, Accounts, OpenAccountError};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terrace_memory::Memory;

/// What a bank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankOptions {
    /// What its orders do.
    pub profile: Profile,
    /// How they are executed.
    pub engine: LedgerEngine,
    /// Threads that execute them, the caller's among them.
    pub workers: usize,
    /// How far below zero a floor may let accounts go.
    pub overdraft: u64,
}

impl Default for BankOptions {
    fn default() -> BankOptions {
        BankOptions {
            profile: Profile::default(),
            engine: LedgerEngine::default(),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            overdraft: 0,
        }
    }
}

/// Why a bank does not take something. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// An order is about an account that there is not.
    #[error("order {order} is about the account {account}, which has not been opened")]
    Unknown {
        /// Its place in the block, from 0.
        order: usize,
        /// The account's number.
        account: u64,
    },
    /// The block's orders are not of the ledger's profile.
    #[error("a ledger of profile {profile} takes {takes}")]
    Profile {
        /// The ledger's.
        profile: Profile,
        /// What its blocks are of.
        takes: &'static str,
    },
    /// A floor is below the ledger's.
    #[error("order {order} has the floor {floor}: this ledger lets accounts go to -{overdraft}")]
    Floor {
        /// Its place in the block, from 0.
        order: usize,
        /// What it asks for.
        floor: i64,
        /// How far below zero the ledger goes.
        overdraft: u64,
    },
    /// An account cannot be opened.
    #[error("account {number}: {why}")]
    Account {
        /// Its number.
        number: u64,
        /// Why.
        why: OpenAccountError,
    },
    /// There would be too much money, overdrafts of all accounts included, or less than there may be.
    #[error(
        "account {number} would open with {balance}: balances and overdrafts of all accounts may be \
         {MOST_MONEY} in sum, and there are {held}"
    )]
    Money {
        /// Its number.
        number: u64,
        /// What it was to have.
        balance: u64,
        /// What all others have, and may overdraw.
        held: u64,
    },
}

/// What a block did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Which of a ledger's entries it is, from 1; 0 of a bank by itself.
    pub entry: u64,
    /// What became of each order.
    pub statuses: Vec<Status>,
    /// The state after the block.
    pub hash: Sum,
    /// How it was executed.
    pub engine: LedgerEngine,
    /// Orders that were executed a second time, since one of their cluster failed.
    pub rerun: usize,
    /// From the call to the end.
    pub took: Duration,
}

/// How one block is executed, with what it needs meanwhile.
pub(super) trait Plan<O: Orders, M: Memory>: Send + Sync + 'static {
    /// Whether it finds the accounts of the orders by itself, and changes nothing if there is one that is not there.
    const FINDS: bool = false;

    /// The part of one worker. What it changes it adds to `sum`.
    fn work(&self, task: &Task<O, M>, worker: usize, meeting: &Meeting, sum: &mut Sum);

    /// Orders that were executed again.
    fn rerun(&self) -> usize {
        0
    }
}

/// A block whose accounts are found.
pub(super) struct Task<O, M: Memory> {
    pub orders: O,
    pub accounts: Arc<Accounts<M>>,
    statuses: Vec<AtomicU8>,
    /// The first order with an account that there is not.
    unknown: AtomicUsize,
}

impl<O: Orders, M: Memory> Task<O, M> {
    fn new(orders: O, accounts: Arc<Accounts<M>>) -> Task<O, M> {
        let statuses = (0..orders.len()).map(|_| AtomicU8::new(Status::Done as u8)).collect();
        Task { orders, accounts, statuses, unknown: AtomicUsize::new(usize::MAX) }
    }

    /// Finds the accounts of a range of orders, and does `then` with each order; up to the first that has an account
    /// that there is not. Where that is.
    #[inline(always)]
    pub fn find(&self, range: Range<usize>, mut then: impl FnMut(usize)) -> usize {
        let (orders, accounts) = (&self.orders, &*self.accounts);
        let first = |orders| range.start..range.end.min(range.start + orders);
        first(2 * AHEAD).for_each(|order| orders.foresee(order, accounts));
        first(AHEAD).for_each(|order| orders.locate(order, accounts));
        for order in range.clone() {
            if order + 2 * AHEAD < range.end {
                orders.foresee(order + 2 * AHEAD, accounts);
            }
            if order + AHEAD < range.end {
                orders.locate(order + AHEAD, accounts);
            }
            if orders.find(order, accounts).is_err() {
                self.unknown.fetch_min(order, Relaxed);
                return order;
            }
            then(order);
        }
        range.end
    }

    /// Whether somebody has met an account that there is not.
    pub fn has_unknown(&self) -> bool {
        self.unknown.load(Relaxed) < usize::MAX
    }

    /// What became of every order.
    fn told(&self) -> Vec<Status> {
        self.statuses.iter().map(|byte| Status::of(byte.load(Relaxed))).collect()
    }

    fn check_known(&self) -> Result<(), Refused> {
        match self.unknown.load(Relaxed) {
            usize::MAX => Ok(()),
            order => {
                let account = self.orders.find(order, &self.accounts);
                let account = account.expect_err("it was not found before");
                Err(Refused::Unknown { order, account })
            }
        }
    }

    /// What became of an order; done if nothing is told.
    pub fn tell(&self, order: usize, status: Status) {
        self.statuses[order].store(status as u8, Relaxed);
    }
}

struct Work<P, O, M: Memory> {
    task: Task<O, M>,
    plan: P,
    sum: Mutex<Sum>,
}

impl<P: Plan<O, M>, O: Orders, M: Memory> Job for Work<P, O, M> {
    fn work(&self, worker: usize, meeting: &Meeting) {
        if !P::FINDS {
            self.task.find(meeting.part(worker, self.task.orders.len()), |_| {});
            meeting.meet();
            // Nobody has changed anything.
            if self.task.has_unknown() {
                return;
            }
        }
        let mut sum = Sum::default();
        self.plan.work(&self.task, worker, meeting, &mut sum);
        let mut all = self.sum.lock();
        *all = all.and(sum);
    }
}

/// Accounts in a memory, and threads that execute blocks on them.
pub struct Bank<M: Memory> {
    accounts: Arc<Accounts<M>>,
    options: BankOptions,
    hash: Sum,
    /// No less than the balances of all accounts: gas that was burnt is perhaps counted still.
    money: u64,
    pool: WorkerPool,
    forecast: Forecast,
    /// For tests that must notice.
    #[cfg(test)]
    pub(super) left_out: Option<super::fast::OmittedStep>,
}

impl<M: Memory> Bank<M> {
    /// A bank with the accounts that there are.
    pub fn over(accounts: Accounts<M>, options: BankOptions) -> Bank<M> {
        let hash = Sum::of(accounts.iter());
        let money = money_in(&accounts);
        let pool = WorkerPool::new(options.workers);
        let accounts = Arc::new(accounts);
        Bank {
            accounts,
            options,
            hash,
            money,
            pool,
            forecast: Forecast::default(),
            #[cfg(test)]
            left_out: None,
        }
    }

    /// What it is.
    pub fn options(&self) -> BankOptions {
        self.options
    }

    /// Its accounts.
    pub fn accounts(&self) -> &Accounts<M> {
        &self.accounts
    }

    /// The hash of its state.
    pub fn hash(&self) -> Sum {
        self.hash
    }

    /// What an account holds.
    pub fn account(&self, number: u64) -> Option<Account> {
        self.accounts.find(number).map(|slot| self.accounts.account(slot))
    }

    /// Changes how blocks are executed.
    pub fn set_engine(&mut self, engine: LedgerEngine) {
        self.options.engine = engine;
    }

    /// Whether all these accounts can be opened, but for want of lines.
    ///
    /// # Errors
    /// Those of [`Bank::open`].
    pub fn check_new(&mut self, accounts: &[(u64, u64)]) -> Result<(), Refused> {
        let mut met = std::collections::HashSet::new();
        let overdraft = self.options.overdraft;
        let wanted = |balance: u64| overdraft.saturating_add(balance);
        let all =
            accounts.iter().fold(0u64, |sum, (_, balance)| sum.saturating_add(wanted(*balance)));
        if all > MOST_MONEY.saturating_sub(self.held()) {
            self.money = money_in(&self.accounts);
        }
        let mut held = self.held();
        for (number, balance) in accounts {
            let number = *number;
            let why = match () {
                () if number == u64::MAX => Some(OpenAccountError::Number),
                () if self.accounts.find(number).is_some() => Some(OpenAccountError::Exists),
                () if !met.insert(number) => Some(OpenAccountError::Exists),
                () => None,
            };
            if let Some(why) = why {
                return Err(Refused::Account { number, why });
            }
            if wanted(*balance) > MOST_MONEY.saturating_sub(held) {
                return Err(Refused::Money { number, balance: *balance, held });
            }
            held += wanted(*balance);
        }
        Ok(())
    }

    /// Opens an account with a balance.
    ///
    /// # Errors
    /// [`Refused::Account`], [`Refused::Money`].
    pub fn open(&mut self, number: u64, balance: u64) -> Result<(), Refused> {
        self.check_new(&[(number, balance)])?;
        self.restore(number, Account { balance: balance as i64, ..Account::default() })
    }

    /// Puts an account back as it was in this bank before.
    ///
    /// # Errors
    /// [`Refused::Account`].
    pub fn restore(&mut self, number: u64, account: Account) -> Result<(), Refused> {
        let accounts = Arc::get_mut(&mut self.accounts).expect("no block is on its way");
        accounts.open(number, account).map_err(|why| Refused::Account { number, why })?;
        self.hash.open(number, &account);
        self.money = self.money.saturating_add_signed(account.balance);
        Ok(())
    }

    /// What all accounts have, and may overdraw.
    fn held(&self) -> u64 {
        self.options.overdraft.saturating_mul(self.accounts.len()).saturating_add(self.money)
    }

    /// Executes a block: all its orders, as if one after another.
    ///
    /// # Errors
    /// [`Refused::Unknown`], [`Refused::Profile`], [`Refused::Floor`].
    ///
    /// # Panics
    /// If a worker did: what the block has done then is not known, and the bank takes no more.
    pub fn execute(&mut self, block: Block) -> Result<Executed, Refused> {
        self.check(&block)?;
        match self.options.profile {
            Profile::SmallCoin => self.execute_as::<Coins<false>>(block),
            Profile::SmallCoinPlus => self.execute_as::<Coins<true>>(block),
            Profile::Movements => self.execute_as::<Moves>(block),
        }
    }

    /// Executes blocks one after another, and tells `each` what became of them, in their order. By
    /// [`LedgerEngine::Dag`] the next block is asked for, and its clusters are found, while one is executed.
    ///
    /// # Errors
    /// The first of `each`: no further block is executed.
    ///
    /// # Panics
    /// As [`Bank::execute`].
    pub fn execute_all<E>(
        &mut self,
        blocks: impl IntoIterator<Item = Block>,
        mut each: impl FnMut(&Bank<M>, Result<Executed, Refused>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut blocks = blocks.into_iter();
        if self.options.engine != LedgerEngine::Dag || self.pool.workers() == 1 {
            return blocks.try_for_each(|block| {
                let executed = self.execute(block);
                each(self, executed)
            });
        }
        match self.options.profile {
            Profile::SmallCoin => self.pipe::<Coins<false>, E>(blocks, each),
            Profile::SmallCoinPlus => self.pipe::<Coins<true>, E>(blocks, each),
            Profile::Movements => self.pipe::<Moves, E>(blocks, each),
        }
    }

    fn pipe<O: Orders, E>(
        &mut self,
        mut blocks: impl Iterator<Item = Block>,
        mut each: impl FnMut(&Bank<M>, Result<Executed, Refused>) -> Result<(), E>,
    ) -> Result<(), E> {
        let task = |bank: &Bank<M>, block: Block| {
            let checked = bank.check(&block);
            checked.map(|()| Task::new(O::of(block), Arc::clone(&bank.accounts)))
        };
        let mut now = blocks.next().map(|block| task(self, block).map(Stage::of));
        while let Some(staged) = now {
            let next = blocks.next().map(|block| task(self, block));
            let (refused, next) = match next {
                None => (None, None),
                Some(Ok(next)) => (None, Some(next)),
                Some(Err(refused)) => (Some(Err(refused)), None),
            };
            let (executed, prepared) = match staged {
                Ok(stage) => self.execute_stage(stage, next),
                Err(refused) => (Err(refused), next.map(Stage::of)),
            };
            each(self, executed)?;
            now = prepared.map(Ok).or(refused);
        }
        Ok(())
    }

    /// Executes a block while the next is prepared.
    fn execute_stage<O: Orders>(
        &mut self,
        stage: Stage<O, M>,
        next: Option<Task<O, M>>,
    ) -> (Result<Executed, Refused>, Option<Stage<O, M>>) {
        let started = Instant::now();
        let pipe = Arc::new(Pipe::new(stage, next));
        let job: Arc<dyn Job> = Arc::clone(&pipe) as Arc<dyn Job>;
        self.pool.run(&job);
        drop(job);
        let pipe = Arc::into_inner(pipe).expect("all workers have let go of it");
        let (task, sum, prepared) = pipe.end();
        let executed = task.check_known().map(|()| {
            self.hash = self.hash.and(sum);
            let (engine, took) = (LedgerEngine::Dag, started.elapsed());
            Executed { entry: 0, statuses: task.told(), hash: self.hash, engine, rerun: 0, took }
        });
        (executed, prepared)
    }

    /// Whether the block is one for this bank, but for its accounts.
    fn check(&self, block: &Block) -> Result<(), Refused> {
        let (profile, overdraft) = (self.options.profile, self.options.overdraft);
        suits(profile, block).map_err(|takes| Refused::Profile { profile, takes })?;
        match block.lowest_floor() {
            Some((order, floor)) if floor < 0 && floor.unsigned_abs() > overdraft => {
                Err(Refused::Floor { order, floor, overdraft })
            }
            _ => Ok(()),
        }
    }

    fn execute_as<O: Orders>(&mut self, block: Block) -> Result<Executed, Refused> {
        let started = Instant::now();
        let orders = O::of(block);
        let (engine, foresees) = match self.options.engine {
            LedgerEngine::Auto => self.forecast.choose(orders.len(), self.pool.workers()),
            engine => (engine, self.forecast.foresees()),
        };
        let count = orders.len();
        let task = Task::new(orders, Arc::clone(&self.accounts));
        let (task, sum, rerun) = match engine {
            LedgerEngine::Sequential | LedgerEngine::Auto => self.alone(task)?,
            LedgerEngine::Orangutan => {
                #[allow(unused_mut, reason = "tests leave steps out")]
                let mut fast = Fast::new(count, foresees);
                #[cfg(test)]
                fast.left_out.clone_from(&self.left_out);
                self.together(task, fast)?
            }
            LedgerEngine::Dag => self.together(task, Dag::new(false))?,
            LedgerEngine::DagByPairs => self.together(task, Dag::new(true))?,
            LedgerEngine::Reserve => self.together(task, Reserve::default())?,
            LedgerEngine::BlockStm => self.together(task, BlockStm::new(count))?,
            LedgerEngine::Strife => self.together(task, Strife::default())?,
        };
        self.hash = self.hash.and(sum);
        let took = started.elapsed();
        self.forecast.learn(engine, count, rerun, took);
        Ok(Executed { entry: 0, statuses: task.told(), hash: self.hash, engine, rerun, took })
    }

    /// On this thread.
    fn alone<O: Orders>(&self, task: Task<O, M>) -> Result<(Task<O, M>, Sum, usize), Refused> {
        task.find(0..task.orders.len(), |_| {});
        task.check_known()?;
        let mut sum = Sum::default();
        in_order(&task, &mut sum);
        Ok((task, sum, 0))
    }

    /// On all threads.
    fn together<O: Orders, P: Plan<O, M>>(
        &mut self,
        task: Task<O, M>,
        plan: P,
    ) -> Result<(Task<O, M>, Sum, usize), Refused> {
        let work = Arc::new(Work { task, plan, sum: Mutex::default() });
        let job: Arc<dyn Job> = Arc::clone(&work) as Arc<dyn Job>;
        self.pool.run(&job);
        drop(job);
        let work = Arc::into_inner(work).expect("all workers have let go of it");
        work.task.check_known()?;
        Ok((work.task, work.sum.into_inner(), work.plan.rerun()))
    }
}

fn money_in<M: Memory>(accounts: &Accounts<M>) -> u64 {
    accounts.iter().map(|(_, account)| account.balance).sum::<i64>().max(0) as u64
}

impl<M: Memory> std::fmt::Debug for Bank<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bank").field("options", &self.options).finish_non_exhaustive()
    }
}
