// Uses a gateway by go-redis, step by step, and prints a line for each (walk.txt has what is expected).
//
//	walk HOST PORT PREFIX
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	workers    = 8
	increments = 125 // Of each worker.
	timeout    = 60 * time.Second
)

var (
	ctx    = context.Background()
	client *redis.Client
	prefix string
)

func key(name string) string { return prefix + name }

func say(step string, values ...interface{}) {
	line := step + ":"
	for _, value := range values {
		line += " " + shown(value)
	}
	fmt.Println(line)
}

func shown(value interface{}) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case *redis.StringCmd:
		return shownResult(value.Val(), value.Err())
	case *redis.StatusCmd:
		return shownResult(value.Val(), value.Err())
	case *redis.IntCmd:
		return shownResult(value.Val(), value.Err())
	case *redis.BoolCmd:
		return shownResult(value.Val(), value.Err())
	}
	return fmt.Sprint(value)
}

func shownResult(value interface{}, err error) string {
	if err == redis.Nil {
		return "null"
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(value)
}

// done returns a command's result, and ends the program if it had an error.
func done[T any](value T, err error) T {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	return value
}

func timeLeft(name string) string {
	switch left := done(client.TTL(ctx, name).Result()); left {
	case -1:
		return "none"
	case -2:
		return "missing"
	default:
		if 40*time.Second < left && left <= 100*time.Second {
			return "about 100 s"
		}
		return fmt.Sprintf("%.0f s", left.Seconds())
	}
}

func shownAll(values []interface{}) []interface{} {
	all := []interface{}{}
	for _, value := range values {
		all = append(all, shown(value))
	}
	return all
}

func connect() {
	info := done(client.Do(ctx, "client", "info").Text())
	say("connect", client.Ping(ctx), "by RESP"+regexp.MustCompile(`resp=(\d)`).FindStringSubmatch(info)[1])
}

func stringCommands() {
	color, other := key("color"), key("other")
	say("set and get", client.Set(ctx, color, "red", 0), client.Get(ctx, color))
	say("get of a missing key", client.Get(ctx, key("missing")))
	nx := redis.SetArgs{Mode: "NX"}
	say("set NX", client.SetArgs(ctx, other, "red", nx), client.SetArgs(ctx, other, "green", nx), client.Get(ctx, other))
	xx := redis.SetArgs{Mode: "XX"}
	say("set XX", client.SetArgs(ctx, key("missing"), "x", xx), client.SetArgs(ctx, other, "blue", xx),
		client.Get(ctx, other))
	say("set EX", client.Set(ctx, other, "blue", 100*time.Second), timeLeft(other))
	keep := redis.SetArgs{KeepTTL: true, Get: true}
	say("set KEEPTTL and GET", client.SetArgs(ctx, other, "pink", keep), timeLeft(other))
	set := client.MSet(ctx, key("m1"), "a", key("m2"), "b")
	got := done(client.MGet(ctx, key("m1"), key("m2"), key("missing")).Result())
	say("mset and mget", append([]interface{}{set}, shownAll(got)...)...)
	say("incr, incrby, decr", client.Incr(ctx, key("n")), client.IncrBy(ctx, key("n"), 10), client.Decr(ctx, key("n")))
	say("exists, del, unlink", client.Exists(ctx, key("n"), key("m1"), key("m2"), key("missing")),
		client.Del(ctx, key("m1")), client.Unlink(ctx, key("m2"), key("m1")), client.Exists(ctx, key("n"), key("m2")))
	expires, left := client.Expire(ctx, other, 100*time.Second), timeLeft(other)
	say("expire, ttl, persist", expires, left, client.Persist(ctx, other), timeLeft(other), timeLeft(key("missing")))
	done(client.PExpire(ctx, other, time.Millisecond).Result())
	for done(client.Exists(ctx, other).Result()) == 1 {
		time.Sleep(10 * time.Millisecond)
	}
	say("pexpire and expiry", client.Get(ctx, other))
	text := key("text")
	say("append and strlen", client.Append(ctx, text, "hello"), client.Append(ctx, text, " world"),
		client.StrLen(ctx, text), client.Get(ctx, text))
}

func hashCommands() {
	fruit := key("fruit")
	say("hset", client.HSet(ctx, fruit, "apple", "red", "plum", "blue", "rose", "white"),
		client.HSet(ctx, fruit, "rose", "pink"))
	say("hget", client.HGet(ctx, fruit, "apple"), client.HGet(ctx, fruit, "pear"))
	pairs := []string{}
	for field, value := range done(client.HGetAll(ctx, fruit).Result()) {
		pairs = append(pairs, field+"="+value)
	}
	sort.Strings(pairs)
	say("hgetall", strings.Join(pairs, " "))
	say("hmget", shownAll(done(client.HMGet(ctx, fruit, "apple", "pear", "plum").Result()))...)
	say("hdel and hincrby", client.HDel(ctx, fruit, "plum", "rose", "pear"),
		client.HIncrBy(ctx, fruit, "n", 5), client.HIncrBy(ctx, fruit, "n", -2))
	say("type", client.Type(ctx, key("color")), client.Type(ctx, fruit), client.Type(ctx, key("missing")))
}

func manyCommands() {
	name := func(i int) string { return key(fmt.Sprintf("scan:%03d", i)) }
	done(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := 0; i < 500; i++ {
			pipe.Set(ctx, name(i), i, 0)
		}
		return nil
	}))
	found, different := 0, map[string]bool{}
	scan := client.Scan(ctx, 0, key("scan:*"), 37).Iterator()
	for scan.Next(ctx) {
		found++
		different[scan.Val()] = true
	}
	done(0, scan.Err())
	say("scan", fmt.Sprintf("%d keys, %d different ones", found, len(different)))
	replies := done(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := 0; i < 500; i++ {
			pipe.Incr(ctx, key("turn"))
			pipe.Get(ctx, name(i))
		}
		return nil
	}))
	order := "in order"
	for i, reply := range replies {
		wanted := fmt.Sprint(i / 2)
		if i%2 == 0 {
			wanted = fmt.Sprint(i/2 + 1)
		}
		if shown(reply) != wanted {
			order = fmt.Sprintf("of which number %d is %s", i, shown(reply))
			break
		}
	}
	say("pipeline", fmt.Sprintf("%d replies %s", len(replies), order))
}

func transactions() {
	color, seen := key("color"), key("seen")
	replies := done(client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, seen, 0, 0)
		pipe.Incr(ctx, seen)
		pipe.Get(ctx, color)
		return nil
	}))
	say("multi and exec", replies[0], replies[1], replies[2])
	watched := func(change func()) error {
		return client.Watch(ctx, func(transaction *redis.Tx) error {
			change()
			_, err := transaction.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, seen, "mine", 0)
				return nil
			})
			return err
		}, seen)
	}
	done(0, watched(func() {}))
	say("exec without changes to the watched key", "OK")
	err := watched(func() { done(client.Set(ctx, seen, "theirs", 0).Result()) })
	outcome := fmt.Sprint(err)
	if err == redis.TxFailedErr {
		outcome = "null"
	}
	say("exec after another connection has changed the watched key", outcome, client.Get(ctx, seen))
	connection := client.Conn()
	defer connection.Close()
	for _, words := range [][]interface{}{{"multi"}, {"set", color, "black"}, {"discard"}} {
		done(connection.Do(ctx, words...).Result())
	}
	say("discard", client.Get(ctx, color))
	connection.Do(ctx, "multi")
	connection.Do(ctx, "set", color, "black")
	connection.Do(ctx, "nosuch")
	say("exec after a command that was refused", strings.SplitN(connection.Do(ctx, "exec").Err().Error(), " ", 2)[0])
	if value := client.Get(ctx, color).Val(); value != "red" {
		done(0, errors.New("the transaction ran: "+value))
	}
}

func ranges() {
	for _, letter := range []string{"a", "b", "c", "d"} {
		done(client.Set(ctx, key("lex:"+letter), letter, 0).Result())
	}
	members := func(found []string) string { return strings.ReplaceAll(strings.Join(found, " "), prefix, "") }
	keys := "cell:keys:" + key("lex:")
	say("zrangebylex of cell:keys", members(done(client.ZRangeByLex(ctx, "cell:keys",
		&redis.ZRangeBy{Min: "[" + key("lex:b"), Max: "(" + key("lex:d")}).Result())))
	say("zrangebylex with a prefix and LIMIT", members(done(client.ZRangeByLex(ctx, keys,
		&redis.ZRangeBy{Min: "-", Max: "+", Offset: 1, Count: 2}).Result())))
	say("zrevrangebylex", members(done(client.ZRevRangeByLex(ctx, keys, &redis.ZRangeBy{Min: "(b", Max: "+"}).Result())))
}

func errorsOfCommands() {
	say("unknown command", strings.TrimSpace(client.Do(ctx, "NOSUCH", "it").Err().Error()))
	say("wrong type", client.Incr(ctx, key("fruit")))
	say("not a number", client.Incr(ctx, key("color")))
}

func bytesOfValues() {
	binary := []byte{}
	for i := 0; i < 256; i++ {
		binary = append(binary, byte(i))
	}
	large := bytes.Repeat([]byte("0123456789\r\n\x00$"), 40000)[:500000]
	compare := func(step string, value []byte) {
		done(client.Set(ctx, key("bytes"), value, 0).Result())
		read := done(client.Get(ctx, key("bytes")).Bytes())
		same := 0
		if bytes.Equal(read, value) {
			same = len(read)
		}
		say(step, fmt.Sprintf("%d of %d bytes", same, len(value)))
	}
	compare("binary", binary)
	compare("large value", large)
}

func counter() {
	var all sync.WaitGroup
	for i := 0; i < workers; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for j := 0; j < increments; j++ {
				done(client.Incr(ctx, key("count")).Result())
			}
		}()
	}
	all.Wait()
	say("counter", client.Get(ctx, key("count")))
}

func main() {
	prefix = os.Args[3]
	// The machine may be busy, and a command that was sent again would count twice.
	client = redis.NewClient(&redis.Options{
		Addr: os.Args[1] + ":" + os.Args[2], MaxRetries: -1, DialTimeout: timeout, ReadTimeout: timeout,
		WriteTimeout: timeout, PoolTimeout: timeout,
	})
	defer client.Close()
	connect()
	stringCommands()
	hashCommands()
	manyCommands()
	transactions()
	ranges()
	errorsOfCommands()
	bytesOfValues()
	counter()
}
