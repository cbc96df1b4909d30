"""go test, build and vet; panics."""

PREFIXES = ["go"]

MOD = "module example.org/shop\n\ngo 1.21\n"
SHOP = '''package shop

import "fmt"

func Total(prices []int) int {
	sum := 0
	for _, price := range prices {
		sum += price
	}
	return sum
}

func Pick(list []int, at int) int { return list[at] }

func Show(n int) string { return fmt.Sprintf("%d items", n) }
'''
MANY = '''package shop

import (
	"fmt"
	"testing"
)

func TestMany(t *testing.T) {
	for n := 0; n < 500; n++ {
		t.Run(fmt.Sprintf("row %d", n), func(t *testing.T) {
			if got := Total(make([]int, n)); got != WANT {
				t.Errorf("Total of row %d is %d, want %d", n, got, WANT)
			}
		})
	}
}
'''
FAIL = '''package shop

import "testing"

func TestTotal(t *testing.T) {
	t.Log("adds two prices")
	if got := Total([]int{1, 2}); got != 4 {
		t.Fatalf("Total() = %d, want 4", got)
	}
}

func TestShow(t *testing.T) {
	if got := Show(2); got != "2 things" {
		t.Errorf("Show(2) = %q, want %q", got, "2 things")
	}
}

func TestSkipped(t *testing.T) { t.Skip("needs a printer") }

func TestGood(t *testing.T) {}
'''
PANIC = '''package shop

import "testing"

func TestBefore(t *testing.T) {}

func TestPick(t *testing.T) { Pick([]int{1}, 5) }
'''
BROKEN = '''package shop

import "os"

func Broken() string {
	var unused int
	return undefinedCall(3)
}
'''
MAIN = '''package main

import (
	"fmt"
	"sync"
)

func work(n int, wg *sync.WaitGroup) {
	defer wg.Done()
	var m map[string]int
	m[fmt.Sprint(n)] = n
}

func main() {
	fmt.Println("starting 1 worker")
	var wg sync.WaitGroup
	wg.Add(1)
	go work(1, &wg)
	wg.Wait()
}
'''
DEADLOCK = '''package main

func main() {
	done := make(chan int)
	for n := 0; n < 12; n++ {
		go func() { done <- <-done }()
	}
	<-done
}
'''


def make(r):
    def module(name, files):
        return r.project(f"go-{name}", {"go.mod": MOD, "shop.go": SHOP} | files)

    good = module("good", {"many_test.go": MANY.replace("WANT", "0")})
    r.record("go-test-pass", "go", "go test ./...", ["ok", "example.org/shop"], good)
    r.record("go-test-huge-verbose", "go", "go test -v ./...", ["ok", "example.org/shop"], good)
    half = module("half", {"many_test.go": MANY.replace("WANT", "(n / 499)")})
    facts = ["TestMany/row_499", "Total of row 499 is 0, want 1", "many_test.go:12", "FAIL"]
    r.record("go-test-huge-fail", "go", "go test -v ./...", facts, half)
    r.record("go-test-huge-fail-quiet", "go", "go test ./...", facts, half)
    fail = module("fail", {"fail_test.go": FAIL, "other/other.go": "package other\n", "more/more.go": "package more\n", "more/more_test.go": 'package more\n\nimport "testing"\n\nfunc TestFine(t *testing.T) {}\n'})
    facts = ["TestTotal", "Total() = 3, want 4", "fail_test.go:8", "TestShow", 'Show(2) = "2 items", want "2 things"', "fail_test.go:14", "FAIL\texample.org/shop"]
    r.record("go-test-fail", "go", "go test ./...", facts, fail)
    r.record("go-test-fail-verbose", "go", "go test -v -count=1 ./...", facts + ["needs a printer"], fail)
    r.record("go-test-panic", "go", "go test -v ./...", ["panic: runtime error: index out of range [5] with length 1", "shop.go:13", "panic_test.go:7", "TestPick"], module("panic", {"panic_test.go": PANIC}))
    broken = module("broken", {"broken.go": BROKEN, "fail_test.go": FAIL})
    facts = ['"os" imported and not used', "undefined: undefinedCall", "broken.go:7:9", "declared and not used: unused"]
    r.record("go-build-fail", "go", "go build ./...", facts, broken)
    r.record("go-test-build-fail", "go", "go test ./...", facts[1:3] + ["build failed"], broken)
    r.record("go-vet", "go", "go vet ./...", ["vet.go:6:", "%d"],
             module("vet", {"vet.go": 'package shop\n\nimport "fmt"\n\nfunc Bad() {\n\tfmt.Printf("%d items\\n", "three")\n}\n'}))
    app = r.project("go-app", {"go.mod": MOD, "main.go": MAIN})
    r.record("go-trace-panic", "trace", "go run .", ["panic: assignment to entry in nil map", "main.go:11", "starting 1 worker"], app)
    r.record("go-trace-deadlock", "trace", "go run .", ["fatal error: all goroutines are asleep - deadlock!", "main.go:8", "main.go:6"], r.project("go-dead", {"go.mod": MOD, "main.go": DEADLOCK}))
