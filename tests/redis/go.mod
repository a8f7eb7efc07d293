module cell/walk

go 1.18

// Debian 12 has Go 1.19, and go-redis 9.15 does not compile with that.

require github.com/redis/go-redis/v9 v9.14.1

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
)
