//! Every engine comes to what one order after another comes to, by a model that shares no code with them.

use super::block::{Listed, Movement, Transfer};
use super::book::Book;
use super::fast::OmittedStep;
use super::*;
use crate::ledger::accounts::{Account, Accounts};
use std::collections::BTreeMap;
use terrace_durable::Access;
use terrace_memory::{Backing, Divide, Native, Region};

/// A generator of its own, so that a seed is a case.
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

type Model = BTreeMap<u64, Account>;

/// The profiles as the paper writes them down, in sums that cannot overflow.
fn model(accounts: &mut Model, profile: Profile, block: &Block) -> Vec<Status> {
    let one = |accounts: &mut Model, transfer: &Transfer| {
        let (gas, amount) = (transfer.gas as i64, transfer.amount as i64);
        let from = accounts.get_mut(&transfer.from).expect("opened");
        if profile == Profile::SmallCoin && from.balance < amount || from.balance < gas {
            return Status::Refused;
        }
        from.balance -= gas;
        from.turns += i64::from(profile == Profile::SmallCoinPlus);
        if from.balance < amount {
            return Status::GasOnly;
        }
        from.balance -= amount;
        from.sent += i64::from(profile == Profile::SmallCoinPlus);
        let to = accounts.get_mut(&transfer.to).expect("opened");
        to.balance += amount;
        to.received += i64::from(profile == Profile::SmallCoinPlus);
        Status::Done
    };
    let many = |accounts: &mut Model, movement: &Movement| {
        let before = accounts.clone();
        for (number, sum) in &movement.takes {
            let account = accounts.get_mut(number).expect("opened");
            account.balance -= *sum as i64;
            if account.balance < movement.floor {
                *accounts = before;
                return Status::Refused;
            }
        }
        for (number, sum) in &movement.gives {
            accounts.get_mut(number).expect("opened").balance += *sum as i64;
        }
        Status::Done
    };
    match &block.orders {
        Listed::Transfers(all) => all.iter().map(|order| one(accounts, order)).collect(),
        Listed::Movements(all) => all.iter().map(|order| many(accounts, order)).collect(),
    }
}

fn bank(options: BankOptions, accounts: &Model) -> (Region, Bank<Native>) {
    let room = accounts.len() as u64 + 10;
    let bytes = Accounts::<Native>::bytes_for(room);
    let region = Region::reserve(bytes, Backing::Anonymous).expect("memory");
    region.commit(0, bytes).expect("memory");
    let mut bank = Bank::over(Accounts::over(region.native().part(0, bytes), room), options);
    for (number, account) in accounts {
        bank.restore(*number, *account).expect("room");
    }
    (region, bank)
}

/// Shapes of who pays whom: by number of the order, which of `accounts`.
fn pair(shape: u64, order: u64, accounts: u64, random: &mut Random) -> (u64, u64) {
    let any = |random: &mut Random| random.below(accounts);
    match shape % 7 {
        // A chain, a star in, a star out, a ring, oneself, few who pay many times, anyone.
        0 => (order % accounts, (order + 1) % accounts),
        1 => (any(random), 0),
        2 => (0, any(random)),
        3 => ((order * 7) % accounts, (order * 7 + 7) % accounts),
        4 => {
            let one = any(random);
            (one, if random.below(3) > 0 { one } else { any(random) })
        }
        5 => (random.below(3.min(accounts)), any(random)),
        _ => (any(random), any(random)),
    }
}

fn sum(random: &mut Random) -> u64 {
    match random.below(12) {
        0 => 0,
        1 => MOST_MONEY,
        2 => 1,
        _ => random.below(40),
    }
}

fn transfers(random: &mut Random, orders: u64, accounts: u64, has_gas: bool) -> Block {
    let shape = random.next();
    let transfers = (0..orders).map(|order| {
        let (from, to) = pair(shape, order, accounts, random);
        let gas = if has_gas { random.below(4) } else { 0 };
        Transfer { id: order + 1, from, to, amount: sum(random), gas }
    });
    Block::of_transfers(transfers.collect()).expect("a block")
}

fn movements(random: &mut Random, orders: u64, accounts: u64, overdraft: u64) -> Block {
    let shape = random.next();
    let movements = (0..orders).map(|order| {
        let mut takes = Vec::new();
        let mut gives = Vec::new();
        for _ in 0..=random.below(3) {
            let (from, to) = pair(shape, order, accounts, random);
            let amount = random.below(40);
            takes.push((from, amount));
            gives.push((to, amount - amount.min(random.below(3))));
        }
        let floor = random.below(20) as i64 - random.below(overdraft + 1) as i64;
        Movement { id: 0, takes, gives, floor }
    });
    Block::of_movements(movements.collect()).expect("a block")
}

fn block(random: &mut Random, profile: Profile, orders: u64, accounts: u64) -> Block {
    match profile {
        Profile::SmallCoin => transfers(random, orders, accounts, false),
        Profile::SmallCoinPlus => transfers(random, orders, accounts, true),
        Profile::Movements => movements(random, orders, accounts, 5),
    }
}

/// Blocks one after another on one bank and the model; what differs first.
fn differ(
    seed: u64,
    blocks: u64,
    engine: LedgerEngine,
    workers: usize,
    left_out: Option<OmittedStep>,
) -> Option<String> {
    let mut random = Random(seed);
    let profile = Profile::ALL[random.below(3) as usize];
    let accounts = 1 + random.below(30);
    let account =
        |random: &mut Random| Account { balance: random.below(60) as i64, ..Account::default() };
    let mut expected: Model = (0..accounts).map(|number| (number, account(&mut random))).collect();
    let options = BankOptions { profile, engine, workers, overdraft: 5 };
    let (_region, mut bank) = bank(options, &expected);
    bank.left_out = left_out;
    for turn in 0..blocks {
        let orders = random.below(40);
        let block = block(&mut random, profile, orders, accounts);
        let statuses = model(&mut expected, profile, &block);
        let executed = bank.execute(block).expect("known accounts");
        if left_out == Some(OmittedStep::Barrier) && executed.rerun > 0 {
            // What was deposited too early is not undone: this block shows nothing.
            return None;
        }
        let what = if executed.statuses != statuses {
            "statuses"
        } else if bank.accounts().iter().collect::<Model>() != expected {
            "accounts"
        } else if bank.hash() != Sum::of(expected.clone().into_iter()) {
            "hash"
        } else {
            continue;
        };
        return Some(format!("seed {seed}, block {turn}, {profile}, {engine}: other {what}"));
    }
    None
}

#[test]
fn every_engine_comes_to_what_block_order_comes_to() {
    // 8 engines, 500 banks each, 26 blocks a bank: 104,000 random blocks.
    for (number, engine) in LedgerEngine::ALL.into_iter().enumerate() {
        for seed in 0..500 {
            let workers = 1 + seed as usize % 3;
            let found = differ(1000 * number as u64 + seed, 26, engine, workers, None);
            assert_eq!(found, None);
        }
    }
}

#[test]
fn an_omitted_step_is_noticed() {
    for step in [OmittedStep::Barrier, OmittedStep::Dependents, OmittedStep::Confirmation] {
        let seeds = 0..20_000;
        let noticed = seeds
            .into_iter()
            .find_map(|seed| differ(seed, 10, LedgerEngine::Orangutan, 2, Some(step)));
        let message = noticed.unwrap_or_else(|| panic!("nobody misses {step:?}"));
        println!("without {step:?}: {message}");
    }
}

#[test]
fn clusters_by_account_are_those_by_pairs() {
    use super::orders::{Coins, Moves, Orders};
    fn check<O: Orders>(block: Block, accounts: &Accounts<Native>) {
        let orders = O::of(block);
        (0..orders.len()).for_each(|order| orders.find(order, accounts).expect("opened"));
        let found = Clusters::of(&orders);
        assert_eq!(found, Clusters::by_pairs(&orders));
        let members: usize = (0..found.len()).map(|cluster| found.members(cluster).len()).sum();
        assert_eq!(members, orders.len());
    }
    let model: Model = (0..60).map(|number| (number, Account::default())).collect();
    let (_region, bank) = bank(BankOptions { workers: 1, ..BankOptions::default() }, &model);
    let mut random = Random(7);
    for _ in 0..2_000 {
        let (orders, accounts) = (random.below(50), 1 + random.below(60));
        check::<Coins<true>>(transfers(&mut random, orders, accounts, true), bank.accounts());
        check::<Moves>(movements(&mut random, orders, accounts, 0), bank.accounts());
    }
}

#[test]
fn the_papers_example_ends_as_it_says() {
    // Table 4.1: A = D = X = 10, B = C = Y = 0.
    let [a, b, c, d, x, y] = [1, 2, 3, 4, 5, 6];
    let money = |balance| Account { balance, ..Account::default() };
    let before = [(a, 10), (b, 0), (c, 0), (d, 10), (x, 10), (y, 0)];
    let model: Model = before.into_iter().map(|(number, sum)| (number, money(sum))).collect();
    for engine in LedgerEngine::ALL {
        let options = BankOptions { engine, workers: 2, ..BankOptions::default() };
        let (_region, mut bank) = bank(options, &model);
        let transfers = [(a, b, 5), (x, y, 2), (a, b, 5), (c, d, 5), (d, c, 5)];
        let transfers = transfers.map(|(from, to, amount)| Transfer {
            from,
            to,
            amount,
            ..Transfer::default()
        });
        let executed = bank.execute(Block::of_transfers(transfers.into()).expect("a block"));
        let statuses = executed.expect("known accounts").statuses;
        assert_eq!(statuses[3], Status::Refused, "{engine}");
        assert_eq!(statuses.iter().filter(|status| **status == Status::Done).count(), 4);
        let after = [a, b, c, d, x, y].map(|n| bank.account(n).expect("opened").balance);
        assert_eq!(after, [0, 10, 5, 5, 8, 2], "{engine}");
    }
}

#[test]
fn bad_blocks_are_refused_whole() {
    let model: Model =
        (0..10).map(|n| (n, Account { balance: 100, ..Account::default() })).collect();
    for engine in LedgerEngine::ALL {
        let options = BankOptions { engine, workers: 2, ..BankOptions::default() };
        let (_region, mut bank) = bank(options, &model);
        let pay = |from, to, gas| Transfer { from, to, amount: 1, gas, id: 0 };
        let mut list = vec![pay(1, 2, 0); 300];
        list[250].to = 77;
        let refused = bank.execute(Block::of_transfers(list.clone()).expect("a block"));
        assert_eq!(refused, Err(Refused::Unknown { order: 250, account: 77 }));
        list[250] = pay(1, 2, 1);
        let refused = bank.execute(Block::of_transfers(list).expect("a block")).expect_err("gas");
        assert_eq!(
            refused.to_string(),
            "a ledger of profile smallcoin takes transfers without gas"
        );
        assert_eq!(bank.accounts().iter().collect::<Model>(), model);
        assert_eq!(bank.hash(), Sum::of(model.clone().into_iter()));
    }
    let twice = vec![Transfer { id: 5, ..Transfer::default() }; 2];
    assert_eq!(Block::of_transfers(twice), Err(BlockError::Twice { order: 1, id: 5 }));
    let large = vec![Transfer { amount: MOST_MONEY + 1, ..Transfer::default() }];
    assert_eq!(Block::of_transfers(large), Err(BlockError::Sum { order: 0, sum: MOST_MONEY + 1 }));
    let made = Movement { takes: vec![(1, 2)], gives: vec![(2, 3)], ..Movement::default() };
    let refused = Block::of_movements(vec![made]);
    assert_eq!(refused, Err(BlockError::Made { order: 0, given: 3, taken: 2 }));
}

#[test]
fn an_account_that_there_is_not_leaves_no_trace() {
    let mut random = Random(11);
    let model: Model =
        (0..50).map(|n| (n, Account { balance: 40, ..Account::default() })).collect();
    for (profile, engine) in
        Profile::ALL.iter().flat_map(|profile| LedgerEngine::ALL.map(|engine| (*profile, engine)))
    {
        let options = BankOptions { profile, engine, workers: 3, overdraft: 50 };
        let (_region, mut bank) = bank(options, &model);
        for _ in 0..20 {
            let mut block = block(&mut random, profile, 400, 50);
            let (order, account) =
                (random.below(400) as usize, [77, u64::MAX][random.below(2) as usize]);
            match &mut block.orders {
                Listed::Transfers(transfers) => transfers[order].to = account,
                Listed::Movements(movements) => movements[order].takes = vec![(account, 0)],
            }
            assert_eq!(bank.execute(block), Err(Refused::Unknown { order, account }));
            assert_eq!(bank.accounts().iter().collect::<Model>(), model, "{profile} {engine}");
        }
        assert_eq!(bank.hash(), Sum::of(model.clone().into_iter()));
    }
}

#[test]
fn blocks_in_a_row_come_to_what_each_alone_does() {
    let mut random = Random(12);
    let model: Model =
        (0..40).map(|n| (n, Account { balance: 90, ..Account::default() })).collect();
    for (profile, engine) in
        Profile::ALL.iter().flat_map(|profile| LedgerEngine::ALL.map(|engine| (*profile, engine)))
    {
        let options = BankOptions { profile, engine, workers: 3, overdraft: 50 };
        let (_region, mut row) = bank(options, &model);
        let options = BankOptions { engine: LedgerEngine::Sequential, ..options };
        let (_region, mut alone) = bank(options, &model);
        let blocks: Vec<Block> = (0..30u64)
            .map(|number| {
                let accounts = if number % 7 == 3 { 60 } else { 40 };
                block(&mut random, profile, 1 + number * 20, accounts)
            })
            .collect();
        let outcome = |executed: Result<Executed, Refused>| {
            executed.map(|executed| (executed.statuses, executed.hash))
        };
        let expected: Vec<_> =
            blocks.iter().map(|block| outcome(alone.execute(block.clone()))).collect();
        let mut found = Vec::new();
        let every = row.execute_all(blocks, |bank, executed| {
            executed.iter().for_each(|executed| assert_eq!(bank.hash(), executed.hash));
            found.push(outcome(executed));
            Ok::<_, ()>(())
        });
        assert_eq!((every, found), (Ok(()), expected), "{profile} {engine}");
        assert!(row.accounts().iter().eq(alone.accounts().iter()));
    }
}

#[test]
fn salvage_ends_before_an_entry_that_comes_out_otherwise() {
    let dir = tempfile::tempdir().expect("directory");
    let budget = std::sync::Arc::new(terrace_memory::Budget::new(1 << 30));
    let options = LedgerOptions::default();
    let pay = |amount| {
        let pay = Transfer { from: 1, to: 2, amount, ..Transfer::default() };
        Block::of_transfers(vec![pay]).expect("a block")
    };
    let mut book = Book::open(dir.path(), &options, &budget).expect("a ledger");
    book.open_accounts(&[(1, 100), (2, 0)]).expect("new ones");
    book.execute(pay(5)).expect("known");
    book.bank.execute(pay(6)).expect("known");
    let (kind, body) = record::body(&pay(7));
    book.keep(kind, &body).expect("room");
    book.close().expect("close");
    drop(book);
    let Err(error) = Book::open(dir.path(), &options, &budget) else { panic!("another hash") };
    assert!(error.to_string().contains("entry 2 ends with the hash"), "{error}");
    let salvage = LedgerOptions { access: Access::Salvage, ..options };
    let book = Book::open(dir.path(), &salvage, &budget).expect("what is intact");
    let stats = book.stats();
    assert_eq!(book.bank.account(2).expect("opened").balance, 5);
    assert_eq!((stats.entries, stats.hash), (2, Sum::of(book.bank.accounts().iter())));
    assert!(stats.damage.expect("told").contains("entry 2 ends with the hash"));
}

#[test]
fn no_more_money_than_fits() {
    let (_region, mut bank) =
        bank(BankOptions { overdraft: 10, ..BankOptions::default() }, &Model::new());
    let most = MOST_MONEY;
    assert!(matches!(bank.open(1, most), Err(Refused::Money { .. })));
    bank.open(1, most - 20).expect("with an overdraft of 10");
    assert!(matches!(bank.open(2, 1), Err(Refused::Money { .. })));
    bank.open(2, 0).expect("with an overdraft of 10");
    assert!(matches!(bank.open(3, 0), Err(Refused::Money { .. })));
    assert!(matches!(bank.open(2, 0), Err(Refused::Account { .. })));
}
