//! A store in a database that the application has open, and kills of stores of both kinds.

use std::sync::Arc;

use dupeproof::redb::{Database, ReadableDatabase, TableDefinition};
use dupeproof::{Begin, Claim, ErrorKind, Settlement, Sharing, Status, Store};

use crate::support::child::{Child, Task, park};
use crate::support::*;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

const ORDERS: TableDefinition<'_, &str, u64> = TableDefinition::new("orders");

fn order(store: &Store, name: &str) -> Option<u64> {
    use dupeproof::redb::ReadableTable;

    let found = store.read(|tables| {
        let Some(orders) = tables.open_table(ORDERS)? else { return Ok(None) };
        Fallible::Ok(orders.get(name)?.map(|cents| cents.value()))
    });
    found.unwrap()
}

fn paid(store: &Store, claim: &Claim, name: &str) -> Fallible<()> {
    store.transaction(|tx| {
        tx.open_table(ORDERS)?.insert(name, 1200)?;
        Ok(tx.settle(claim, Settlement::Succeeded("receipt".into()))?)
    })
}

fn application(world: &World) -> Arc<Database> {
    Arc::new(Database::create(world.path()).unwrap())
}

#[test]
fn store_in_the_application_s_database_lives_beside_its_tables() {
    let world = World::new();
    for round in 1..=3_u64 {
        let database = application(&world);
        let txn = database.begin_write().unwrap();
        txn.open_table(ORDERS).unwrap().insert("app", round).unwrap();
        txn.commit().unwrap();
        let store = world.options().attach(database.clone()).unwrap();
        assert_eq!(store.is_new(), round == 1);
        let operation = operation(&round.to_string());
        let claim = execute(&store, &operation);
        paid(&store, &claim, &round.to_string()).unwrap();
        assert!(replay(&store, &self::operation("1")).is_success());
        assert_eq!(store.compact().unwrap_err().kind(), ErrorKind::Refused);
        assert!(store.verify().unwrap().is_clean());
        store.backup(world.folder().join(format!("copy {round}"))).unwrap();
        store.close().unwrap();
        // The application goes on with its database.
        let txn = database.begin_read().unwrap();
        assert_eq!(txn.open_table(ORDERS).unwrap().get("app").unwrap().unwrap().value(), round);
    }
    let copy = world.options().open(world.folder().join("copy 3")).unwrap();
    assert!(replay(&copy, &operation("3")).is_success());
}

/// A second one would take the claims of the first for those of an earlier open, and end them.
#[test]
fn second_store_in_one_database_is_refused_until_the_first_is_closed() {
    let world = World::new();
    let database = application(&world);
    let store = world.options().attach(database.clone()).unwrap();
    let claim = execute(&store, &operation("a"));
    assert_eq!(world.options().attach(database.clone()).unwrap_err().kind(), ErrorKind::OpenElsewhere);
    claim.succeed_raw("receipt").unwrap();
    store.close().unwrap();
    let store = world.options().attach(database.clone()).unwrap();
    assert!(replay(&store, &operation("a")).is_success());
    drop(store);
    world.options().attach(database).unwrap();
}

#[test]
fn database_that_others_write_to_is_no_place_for_an_exclusive_store() {
    let world = World::new();
    application(&world);
    let mode = dupeproof::redb::ConcurrencyMode::MultiWriter;
    let database = Arc::new(Database::builder().set_concurrency_mode(mode).open(world.path()).unwrap());
    let refused = world.options().attach(database.clone()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    let store = world.options().with_sharing(Sharing::Shared).attach(database).unwrap();
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
}

#[test]
fn attach_makes_no_store_that_must_exist_and_takes_over_one_that_has_a_file() {
    let world = World::new();
    let database = application(&world);
    assert_eq!(world.options().must_exist().attach(database).unwrap_err().kind(), ErrorKind::NotFound);
    let filed = World::new();
    let store = filed.open();
    execute(&store, &operation("a")).succeed_raw("receipt").unwrap();
    store.close().unwrap();
    let store = filed.options().must_exist().attach(Arc::new(Database::open(filed.path()).unwrap())).unwrap();
    assert!(replay(&store, &operation("a")).is_success());
}

/// SIGKILL at random instants of orders that are paid: each order has its settlement, and each settlement its order.
#[test]
fn kill_parts_no_order_from_its_settlement() {
    let mut dice = crate::support::dice::Dice::fresh();
    for round in 0..12 {
        let world = World::new();
        let how = if round % 2 == 0 { "filed" } else { "attached" };
        drop(application(&world));
        if round % 2 == 0 {
            std::fs::remove_file(world.path()).unwrap();
            world.open().close().unwrap();
        }
        let mut child = Child::start(module_path!(), &world, how);
        child.expect("paying");
        std::thread::park_timeout(std::time::Duration::from_micros(dice.throw() % 30_000));
        child.kill();
        let store = world.options().open(world.path());
        let store = store.or_else(|_| world.options().attach(application(&world))).unwrap();
        assert!(store.verify().unwrap().is_clean());
        let mut settled = 0;
        for number in 0.. {
            let name = number.to_string();
            let Some(found) = store.get(key(&name)).unwrap() else { break };
            let is_settled = found.status == Status::Succeeded;
            assert_eq!(order(&store, &name).is_some(), is_settled, "{name} of {how}: {found:?}");
            assert!(is_settled || found.status == Status::Unknown);
            settled += u64::from(is_settled);
        }
        println!("{settled} paid");
    }
}

#[test]
fn child() {
    let Some(task) = Task::given() else { return };
    let [how] = task.words();
    let store = match how {
        "filed" => task.world.open(),
        _ => task.world.options().attach(application(&task.world)).unwrap(),
    };
    crate::support::child::say("paying");
    for number in 0..10_000 {
        let name = number.to_string();
        let Begin::Execute(claim) = store.begin(&operation(&name)).unwrap() else { panic!("a new key") };
        paid(&store, &claim, &name).unwrap();
    }
    park("paid");
}
