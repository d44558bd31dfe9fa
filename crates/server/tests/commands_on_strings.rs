//! The string commands, every option, against ourselves and the real redis-server.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

#[test]
fn set_and_get() {
    crate::common::script::run(
        r#"
        GET a => nil
        SET a 1 => OK
        GET a => "1"
        get a => "1"
        GeT a => "1"
        SET a "x y\r\n\x00z" => OK
        GET a => "x y\r\n\x00z"
        SET a "" => OK
        GET a => ""
        STRLEN a => :0
        SET "k k" v => OK
        GET "k k" => "v"
        SET "" empty => OK
        GET "" => "empty"
        DEL "" => :1
        GET => -ERR wrong number of arguments for 'get' command
        GET a b => -ERR wrong number of arguments for 'get' command
        SET a => -ERR wrong number of arguments for 'set' command
        SET a b nonsense => -ERR syntax error
        SET a b EX => -ERR syntax error
        SET a b NX XX => -ERR syntax error
        SET a b XX NX => -ERR syntax error
        SET a b EX 10 PX 10 => -ERR syntax error
        SET a b EX 10 KEEPTTL => -ERR syntax error
        SET a b KEEPTTL EX 10 => -ERR syntax error
        SET a b KEEPTTL KEEPTTL => OK
        SET a b PERSIST => -ERR syntax error
        SET a b EX x => -ERR value is not an integer or out of range
        SET a b EX 0 => -ERR invalid expire time in 'set' command
        SET a b EX -5 => -ERR invalid expire time in 'set' command
        SET a b PX 0 => -ERR invalid expire time in 'set' command
        SET a b EX 9223372036854775807 => -ERR invalid expire time in 'set' command
        SET a b EX 9223372036854775 => -ERR invalid expire time in 'set' command
        SET a b PX 9223372036854775807 => -ERR invalid expire time in 'set' command
        SET a b EX 99999999999999999999 => -ERR value is not an integer or out of range
        SET a b EX 100 => OK
        TTL a => :99..100
        SET a b => OK
        TTL a => :-1
        SET a b PX 100000 => OK
        PTTL a => :90000..100000
        SET a c KEEPTTL => OK
        PTTL a => :90000..100000
        GET a => "c"
        SET a c EXAT 33177117420 => OK
        EXPIRETIME a => :33177117420
        SET a c PXAT 33177117420000 => OK
        PEXPIRETIME a => :33177117420000
        SET a c EXAT 1 => OK
        GET a => nil
        SET a 1 => OK
        SET a 2 NX => nil
        GET a => "1"
        SET fresh 2 NX => OK
        SET fresh 3 XX => OK
        SET missing 3 XX => nil
        SET missing 3 XX GET => nil
        EXISTS missing => :0
        SET a 5 GET => "1"
        SET missing 1 GET => nil
        GET missing => "1"
        SET missing 7 NX GET => "1"
        GET missing => "1"
        SET a 6 XX GET EX 100 => "5"
        TTL a => :99..100
        SET a 6 ex 100 get => "6"
    "#,
    );
}

#[test]
fn variants_of_set_and_get() {
    crate::common::script::run(
        r#"
        SETNX a 1 => :1
        SETNX a 2 => :0
        GET a => "1"
        SETEX a 100 v => OK
        TTL a => :99..100
        SETEX a 0 v => -ERR invalid expire time in 'setex' command
        SETEX a -1 v => -ERR invalid expire time in 'setex' command
        SETEX a x v => -ERR value is not an integer or out of range
        PSETEX a 100000 v => OK
        PTTL a => :90000..100000
        PSETEX a 0 v => -ERR invalid expire time in 'psetex' command
        GETSET a w => "v"
        TTL a => :-1
        GETSET b w => nil
        GETDEL a => "w"
        GETDEL a => nil
        EXISTS a => :0
        GETEX b => "w"
        TTL b => :-1
        GETEX b EX 100 => "w"
        TTL b => :99..100
        GETEX b => "w"
        TTL b => :99..100
        GETEX b PX 100000 => "w"
        GETEX b EXAT 33177117420 => "w"
        EXPIRETIME b => :33177117420
        GETEX b PXAT 33177117420000 => "w"
        GETEX b PERSIST => "w"
        TTL b => :-1
        GETEX b PERSIST => "w"
        GETEX b PERSIST EX 10 => -ERR syntax error
        GETEX b EX 10 PERSIST => -ERR syntax error
        GETEX b NX => -ERR syntax error
        GETEX b KEEPTTL => -ERR syntax error
        GETEX b GET => -ERR syntax error
        GETEX b EX 0 => -ERR invalid expire time in 'getex' command
        GETEX b EX x => -ERR value is not an integer or out of range
        GETEX nothing EX 10 => nil
        GETEX b EXAT 1 => "w"
        EXISTS b => :0
        STRLEN nothing => :0
        APPEND s hello => :5
        APPEND s " world" => :11
        GET s => "hello world"
        APPEND s "" => :11
        APPEND t "" => :0
        EXISTS t => :1
        EXPIRE s 100 => :1
        APPEND s ! => :12
        TTL s => :99..100
        STRLEN s => :12
    "#,
    );
}

#[test]
fn ranges() {
    crate::common::script::run(
        r#"
        SET s "This is a string" => OK
        GETRANGE s 0 3 => "This"
        GETRANGE s -3 -1 => "ing"
        GETRANGE s 0 -1 => "This is a string"
        GETRANGE s 10 100 => "string"
        GETRANGE s 5 3 => ""
        GETRANGE s -1 -3 => ""
        GETRANGE s 0 -100 => "T"
        GETRANGE s 16 20 => ""
        GETRANGE nothing 0 -1 => ""
        GETRANGE s a 1 => -ERR value is not an integer or out of range
        GETRANGE s 0 => -ERR wrong number of arguments for 'getrange' command
        SUBSTR s 0 3 => "This"
        SUBSTR s 0 => -ERR wrong number of arguments for 'substr' command
        SETRANGE s 5 "IS" => :16
        GET s => "This IS a string"
        SETRANGE s 14 "longer end" => :24
        GET s => "This IS a strilonger end"
        SETRANGE new 3 abc => :6
        GET new => "\x00\x00\x00abc"
        SETRANGE empty 0 "" => :0
        SETRANGE empty 5 "" => :0
        EXISTS empty => :0
        SETRANGE s 0 "" => :24
        SETRANGE s -1 x => -ERR offset is out of range
        SETRANGE s x x => -ERR value is not an integer or out of range
        SETRANGE s 536870911 xx => -ERR string exceeds maximum allowed size (proto-max-bulk-len)
        EXPIRE s 100 => :1
        SETRANGE s 0 T => :24
        TTL s => :99..100
    "#,
    );
}

#[test]
fn counters() {
    crate::common::script::run(
        r#"
        INCR n => :1
        INCR n => :2
        INCRBY n 40 => :42
        DECR n => :41
        DECRBY n 41 => :0
        INCRBY n -7 => :-7
        GET n => "-7"
        SET n 9223372036854775807 => OK
        INCR n => -ERR increment or decrement would overflow
        GET n => "9223372036854775807"
        SET n -9223372036854775808 => OK
        DECR n => -ERR increment or decrement would overflow
        DECRBY n -9223372036854775808 => -ERR decrement would overflow
        INCRBY n x => -ERR value is not an integer or out of range
        INCRBY n 1.5 => -ERR value is not an integer or out of range
        SET n abc => OK
        INCR n => -ERR value is not an integer or out of range
        SET n " 11" => OK
        INCR n => -ERR value is not an integer or out of range
        SET n "11 " => OK
        INCR n => -ERR value is not an integer or out of range
        SET n 011 => OK
        INCR n => -ERR value is not an integer or out of range
        SET n 10 EX 100 => OK
        INCR n => :11
        TTL n => :99..100
        SET f 10.50 => OK
        INCRBYFLOAT f 0.1 => "10.6"
        INCRBYFLOAT f -5 => "5.6"
        SET f 5.0e3 => OK
        INCRBYFLOAT f 2.0e2 => "5200"
        INCRBYFLOAT new 1.5 => "1.5"
        INCRBYFLOAT new 1.5 => "3"
        INCRBYFLOAT new -3 => "0"
        SET f 0.1 => OK
        INCRBYFLOAT f 0.2 => "0.3"
        SET f 3 => OK
        INCRBYFLOAT f 1.1 => "4.1"
        INCRBYFLOAT f abc => -ERR value is not a valid float
        INCRBYFLOAT f " 1" => -ERR value is not a valid float
        INCRBYFLOAT f "" => -ERR value is not a valid float
        INCRBYFLOAT f nan => -ERR value is not a valid float
        INCRBYFLOAT f inf => -ERR increment would produce NaN or Infinity
        SET f abc => OK
        INCRBYFLOAT f 1 => -ERR value is not a valid float
        INCRBYFLOAT n 0.5 => "11.5"
        TTL n => :99..100
    "#,
    );
}

#[test]
fn several_keys() {
    crate::common::script::run(
        r#"
        MSET a 1 b 2 c 3 => OK
        MGET a b c nothing a => ["1", "2", "3", nil, "1"]
        MSET a 1 b => -ERR wrong number of arguments for 'mset' command
        MSET a => -ERR wrong number of arguments for 'mset' command
        MSET a 1 a 2 => OK
        GET a => "2"
        EXPIRE a 100 => :1
        MSET a 5 => OK
        TTL a => :-1
        MSETNX d 4 a 9 => :0
        EXISTS d => :0
        MSETNX d 4 e 5 => :1
        MGET d e => ["4", "5"]
        MSETNX x 1 x 2 => :1
        GET x => "2"
        MSETNX d => -ERR wrong number of arguments for 'msetnx' command
        MSETNX d 1 e => -ERR wrong number of arguments for 'msetnx' command
        MGET => -ERR wrong number of arguments for 'mget' command
    "#,
    );
}
