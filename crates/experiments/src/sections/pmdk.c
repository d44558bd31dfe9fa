/*
 * The workloads SPS, Hash and RBTree as transactions of libpmemobj: the same operations on the same
 * keys as terrace's, so that speeds can be compared and contents checked.
 *
 *   pmdk WORKLOAD DRAW FILE POOL_BYTES SECTIONS ROUNDS KEYS PLACES SEED
 *
 * Says "ready" when it is warm; runs a round for each line it reads and prints its sections a second;
 * after the last one prints a digest of the contents.
 * Links are offsets from the pool's base. What a transaction changes is added to it first, a node as a
 * whole, as the library's manual has it; new objects need no snapshot.
 */
#include <libpmemobj.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t word;

struct node {
	word key, value, left, right, parent, red;
};

struct link {
	word key, value, next;
};

struct root {
	word places; /* elements of the array, or first links of chains */
	word top;    /* of the tree */
};

static PMEMobjpool *pool;
static struct root *root;
static word keys, places;

static void *at(word offset) { return (char *)pool + offset; }
static struct node *node(word offset) { return at(offset); }
static word *array(void) { return at(root->places); }

static void add(void *start, size_t bytes) { pmemobj_tx_add_range_direct(start, bytes); }

static void set(word *target, word value)
{
	add(target, sizeof(word));
	*target = value;
}

static void release(word offset) { pmemobj_tx_free(pmemobj_oid(at(offset))); }

/* Draws: as terrace's, number for number. */

static word draw(word *state)
{
	word z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static word draw_key(word *state, int zipf)
{
	word hot = keys * 15 / 100 ? keys * 15 / 100 : 1;
	word most = zipf && draw(state) % 100 < 80 ? hot : keys;
	return draw(state) % most * 0x9e3779b1u % keys;
}

/* SPS */

static void swap(word key, word value)
{
	word *one = array() + key % places, *other = array() + value % places;
	word a = *one, b = *other;
	set(one, b);
	set(other, a);
}

/* Hash */

static word *bucket(word key)
{
	return array() + (key * 0x9e3779b97f4a7c15u >> 32) % places;
}

static void toggle_hash(word key, word value)
{
	word *link = bucket(key);
	while (*link) {
		struct link *here = at(*link);
		if (here->key == key) {
			word gone = *link;
			set(link, here->next);
			release(gone);
			return;
		}
		link = &here->next;
	}
	PMEMoid new = pmemobj_tx_alloc(sizeof(struct link), 1);
	*(struct link *)at(new.off) = (struct link){key, value, 0};
	set(link, new.off);
}

/* RBTree */

static void change(word n) { add(node(n), sizeof(struct node)); }
static int is_red(word n) { return n && node(n)->red; }
static word *child(word n, int right) { return right ? &node(n)->right : &node(n)->left; }
static int side(word n, word parent) { return node(parent)->right == n; }

static void paint(word n, word red)
{
	if (n && node(n)->red != red) {
		change(n);
		node(n)->red = red;
	}
}

static void replace(word old, word new, word parent)
{
	if (!parent) {
		set(&root->top, new);
	} else {
		int right = side(old, parent);
		change(parent);
		*child(parent, right) = new;
	}
	if (new) {
		change(new);
		node(new)->parent = parent;
	}
}

static void rotate(word n, int right)
{
	word up = *child(n, !right), inner = *child(up, right), parent = node(n)->parent;
	replace(n, up, parent);
	change(n);
	*child(n, !right) = inner;
	if (inner) {
		change(inner);
		node(inner)->parent = n;
	}
	*child(up, right) = n;
	node(n)->parent = up;
}

static void insert(word key, word value, word parent)
{
	word n = pmemobj_tx_alloc(sizeof(struct node), 2).off;
	*node(n) = (struct node){key, value, 0, 0, parent, parent != 0};
	if (!parent) {
		set(&root->top, n);
		return;
	}
	change(parent);
	*child(parent, key > node(parent)->key) = n;
	while (is_red(parent = node(n)->parent)) {
		word grand = node(parent)->parent;
		int right = side(parent, grand);
		word uncle = *child(grand, !right);
		if (is_red(uncle)) {
			paint(parent, 0);
			paint(uncle, 0);
			paint(grand, 1);
			n = grand;
			continue;
		}
		if (side(n, parent) != right) {
			rotate(parent, right);
			parent = n;
		}
		paint(parent, 0);
		paint(grand, 1);
		rotate(grand, !right);
		break;
	}
	paint(root->top, 0);
}

static void mend(word n, word parent)
{
	while (parent && !is_red(n)) {
		int right = side(n, parent);
		word sibling = *child(parent, !right);
		if (is_red(sibling)) {
			paint(sibling, 0);
			paint(parent, 1);
			rotate(parent, right);
			sibling = *child(parent, !right);
		}
		if (!is_red(*child(sibling, 0)) && !is_red(*child(sibling, 1))) {
			paint(sibling, 1);
			n = parent;
			parent = node(n)->parent;
			continue;
		}
		if (!is_red(*child(sibling, !right))) {
			paint(*child(sibling, right), 0);
			paint(sibling, 1);
			rotate(sibling, !right);
			sibling = *child(parent, !right);
		}
		paint(sibling, node(parent)->red);
		paint(parent, 0);
		paint(*child(sibling, !right), 0);
		rotate(parent, right);
		n = root->top;
		break;
	}
	paint(n, 0);
}

static void delete(word n)
{
	struct node old = *node(n);
	word orphan, parent = old.parent;
	int was_red = old.red;
	if (!old.left || !old.right) {
		orphan = old.left ? old.left : old.right;
		replace(n, orphan, parent);
	} else {
		word next = old.right;
		while (node(next)->left)
			next = node(next)->left;
		was_red = is_red(next);
		orphan = node(next)->right;
		parent = node(next)->parent;
		change(next);
		if (parent == n) {
			parent = next;
		} else {
			replace(next, orphan, parent);
			node(next)->right = old.right;
			change(old.right);
			node(old.right)->parent = next;
		}
		replace(n, next, old.parent);
		node(next)->left = old.left;
		change(old.left);
		node(old.left)->parent = next;
		node(next)->red = old.red;
	}
	if (!was_red)
		mend(orphan, parent);
	release(n);
}

static void toggle_tree(word key, word value)
{
	word parent = 0, n = root->top;
	while (n && node(n)->key != key) {
		parent = n;
		n = *child(n, key > node(n)->key);
	}
	if (n)
		delete(n);
	else
		insert(key, value, parent);
}

/* The run */

static word entry(word key, word value) { return (key + 1) * 0x9e3779b97f4a7c15u ^ value; }

static word digest_tree(word n)
{
	if (!n)
		return 0;
	return entry(node(n)->key, node(n)->value) + digest_tree(node(n)->left) +
	       digest_tree(node(n)->right);
}

static word digest(char workload)
{
	word sum = 0;
	if (workload == 'R')
		return digest_tree(root->top);
	for (word i = 0; i < places; i++) {
		if (workload == 'S')
			sum += entry(i, array()[i]);
		for (word l = workload == 'H' ? array()[i] : 0; l; l = ((struct link *)at(l))->next)
			sum += entry(((struct link *)at(l))->key, ((struct link *)at(l))->value);
	}
	return sum;
}

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, pmemobj_errormsg());
	exit(1);
}

static void section(char workload, word key, word value)
{
	TX_BEGIN(pool) {
		if (workload == 'S')
			swap(key, value);
		else if (workload == 'H')
			toggle_hash(key, value);
		else
			toggle_tree(key, value);
	} TX_ONABORT {
		fail("a transaction");
	} TX_END
}

static void make(char workload)
{
	TX_BEGIN(pool) {
		add(root, sizeof(*root));
		root->top = 0;
		root->places = pmemobj_tx_zalloc(places * sizeof(word), 3).off;
		for (word i = 0; workload == 'S' && i < places; i++)
			array()[i] = i;
	} TX_ONABORT {
		fail("the first transaction");
	} TX_END
	for (word i = 0; workload != 'S' && i < keys / 2; i++)
		section(workload, i * 0x9e3779b1u % keys, i);
}

static double run(char workload, int zipf, word *state, word *words, word sections)
{
	struct timespec start, end;
	word *drawn = malloc(2 * sections * sizeof(word));
	for (word i = 0; i < sections; i++) {
		drawn[2 * i] = draw_key(state, zipf);
		drawn[2 * i + 1] = draw(words);
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (word i = 0; i < sections; i++)
		section(workload, drawn[2 * i], drawn[2 * i + 1]);
	clock_gettime(CLOCK_MONOTONIC, &end);
	free(drawn);
	return sections / (end.tv_sec - start.tv_sec + 1e-9 * (end.tv_nsec - start.tv_nsec));
}

int main(int count, char **arguments)
{
	if (count != 10) {
		fprintf(stderr, "see the head of the source for the arguments\n");
		return 2;
	}
	char workload = arguments[1][0];
	int zipf = arguments[2][0] == 'Z';
	word numbers[6];
	for (int i = 0; i < 6; i++)
		numbers[i] = strtoull(arguments[4 + i], NULL, 10);
	word bytes = numbers[0], sections = numbers[1], rounds = numbers[2], seed = numbers[5];
	keys = numbers[3];
	places = numbers[4];
	pool = pmemobj_create(arguments[3], "terrace-sections", bytes, 0600);
	if (!pool)
		fail(arguments[3]);
	root = at(pmemobj_root(pool, sizeof(struct root)).off);
	make(workload);
	word state = seed, words = ~seed;
	run(workload, zipf, &state, &words, sections);
	state = seed + 1;
	words = ~(seed + 1);
	puts("ready");
	for (word round = 0; round < rounds; round++) {
		fflush(stdout);
		if (getchar() == EOF)
			return 1;
		printf("%.1f\n", run(workload, zipf, &state, &words, sections));
	}
	printf("%llu\n", (unsigned long long)digest(workload));
	pmemobj_close(pool);
	return 0;
}
