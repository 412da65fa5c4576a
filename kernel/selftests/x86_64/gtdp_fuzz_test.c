// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fuzz /dev/kvm-gtdp: random sequences of calls, from several threads and a second
 * process, for several VMs.  Only errnos that the interface names may come back,
 * statistics must be consistent meanwhile, and nothing may be left or logged.
 *
 * GTDP_SECONDS says how long (default 20, on one CPU 6), GTDP_SEED with what seed.  It gives each
 * thread its sequence; how they meet is up to the host.
 */
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "gtdp_fuzz.h"

#define CAMPAIGN_MSECS	4000
#define ENOUGH_BUILDS	1000
/* So many times longer than asked for, at most, on a host that is slow. */
#define PATIENCE	5
/* On a slow host with all checks, one call may take long. */
#define HANG_SECONDS	180

/* How a campaign ends. */
enum end { END_ORDERLY, END_EXIT, END_KILLED, NR_ENDS };

static void *run_worker(void *arg)
{
	fuzz_work(arg);
	return NULL;
}

/* Another address space, the same files: as if they had been handed over. */
static pid_t start_foreign(struct fuzz_worker *w)
{
	pid_t pid = syscall(__NR_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, 0);

	TEST_ASSERT(pid >= 0, "clone() failed, errno: %i", errno);
	if (!pid) {
		signal(SIGALRM, SIG_DFL);
		alarm(CAMPAIGN_MSECS / 1000 + HANG_SECONDS);
		fuzz_work(w);
		_exit(KSFT_PASS);
	}
	return pid;
}

static void init_locks(void)
{
	pthread_mutexattr_t attr;
	int vm;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	for (vm = 0; vm < FUZZ_VMS; vm++) {
		memset(&fuzz->vms[vm], 0, sizeof(fuzz->vms[vm]));
		fuzz->vms[vm].handle_gen = 1;
		pthread_mutex_init(&fuzz->vms[vm].handle_lock, &attr);
		pthread_mutex_init(&fuzz->vms[vm].life, &attr);
	}
}

static void join(pthread_t thread)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += HANG_SECONDS;
	if (pthread_timedjoin_np(thread, NULL, &end))
		fuzz_fail(NULL, "a thread hangs");
}

/* Something to begin with. */
static void make_vms(struct fuzz_worker *w)
{
	static struct fuzz_trace nowhere;
	int vm, i, vms = gtdp_below(&w->rng, FUZZ_VMS + 1);

	w->now = &nowhere;
	for (vm = 0; vm < vms; vm++) {
		fuzz_vm_new(w, vm);
		fuzz_attach(w, vm);
		for (i = 0; i < FUZZ_SLOTS / 2; i++)
			fuzz_slot_set(w, vm);
	}
}

static void campaign(u32 stream, enum end end, u64 msecs)
{
	struct fuzz_worker workers[FUZZ_WORKERS];
	pthread_t threads[FUZZ_WORKERS];
	int i, status;
	pid_t foreign;

	fuzz_open();
	for (i = 0; i < FUZZ_WORKERS; i++)
		workers[i] = (struct fuzz_worker) {
			.id = i,
			.foreign = i == FUZZ_WORKERS - 1,
			.rng = gtdp_rng(fuzz->seed, stream * FUZZ_WORKERS + i),
		};
	make_vms(&workers[0]);
	foreign = start_foreign(&workers[FUZZ_WORKERS - 1]);
	for (i = 0; i < FUZZ_WORKERS - 1; i++)
		pthread_create(&threads[i], NULL, run_worker, &workers[i]);

	if (end == END_KILLED)
		pause();
	usleep(msecs * 1000);
	if (end == END_EXIT)
		_exit(KSFT_PASS);

	WRITE_ONCE(fuzz->stop, true);
	for (i = 0; i < FUZZ_WORKERS - 1; i++)
		join(threads[i]);
	if (waitpid(foreign, &status, 0) != foreign || status)
		fuzz_fail(NULL, "the second process ended with 0x%x", status);
	fuzz_assert_quiet_state();
	for (i = 0; i < FUZZ_VMS; i++)
		fuzz_vm_end(&workers[0], i);
	if (gtdp_own_pin())
		fuzz_fail(NULL, "VmPin is 0x%lx with all VMs gone", gtdp_own_pin());
	_exit(KSFT_PASS);
}

/* Nobody has the writing end any more: the second process has gone, too. */
static void wait_for_all(int pipe_fd)
{
	char c;

	TEST_ASSERT(!read(pipe_fd, &c, 1), "the pipe of a campaign has data");
	close(pipe_fd);
}

static void run_campaign(u32 stream, enum end end, u64 msecs)
{
	int status, pipes[2];
	pid_t pid;

	init_locks();
	fuzz->stop = false;
	memset(fuzz->traced, 0, sizeof(fuzz->traced));
	TEST_ASSERT(!pipe(pipes), "pipe() failed, errno: %i", errno);
	fflush(stdout);
	pid = fork();
	TEST_ASSERT(pid >= 0, "fork() failed, errno: %i", errno);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		campaign(stream, end, msecs);
	}
	close(pipes[1]);
	if (end == END_KILLED) {
		usleep(msecs * 1000);
		kill(pid, SIGKILL);
	}
	TEST_ASSERT(waitpid(pid, &status, 0) == pid, "waitpid() failed, errno: %i", errno);
	/* The second process goes on for a while with what the first has left. */
	usleep(100 * 1000);
	WRITE_ONCE(fuzz->stop, true);
	wait_for_all(pipes[0]);
	fuzz_restore_host();
	/* Killed is SIGKILL, and nothing else. */
	TEST_ASSERT(!READ_ONCE(fuzz->failed) && status == (end == END_KILLED ? SIGKILL : 0),
		    "campaign %u of seed %u failed, status 0x%x", stream, fuzz->seed, status);
}

/* Otherwise it was all refused, and nothing was tested. */
static bool all_calls_worked(void)
{
	return fuzz->counts[FUZZ_BUILD][0] && fuzz->counts[FUZZ_RELEASE][0] &&
	       fuzz->counts[FUZZ_SPLIT][0] && fuzz->counts[FUZZ_COLLAPSE][0] &&
	       fuzz->counts[FUZZ_READ][0] && fuzz->counts[FUZZ_RUN][0];
}

static bool leaves_changed_size(void)
{
	return fuzz->large_leaves && fuzz->splits && fuzz->collapses;
}

static const char *test_fuzz(void)
{
	int seconds = gtdp_seconds(20), log_fd = gtdp_log_open();
	u64 end = gtdp_msecs() + seconds * 1000ull;
	struct gtdp_host_state before, now;
	u64 now_msecs;
	u32 stream = 0;

	fuzz = mmap(NULL, sizeof(*fuzz), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	TEST_ASSERT(fuzz != MAP_FAILED, "mmap() failed, errno: %i", errno);
	fuzz->seed = gtdp_seed();
	gtdp_host_state(&before);

	do {
		run_campaign(stream, stream % NR_ENDS, CAMPAIGN_MSECS);
		gtdp_assert_host_state(&before, (stream ? 1 : 4) * GTDP_FREE_SLACK);
		if (!stream) {
			/* Caches are warm now; from here on, free memory must stay. */
			gtdp_host_state(&now);
			before.free_bytes = now.free_bytes;
		}
		stream++;
		/* However long it takes. */
		alarm(GTDP_CASE_SECONDS + HANG_SECONDS);
		now_msecs = gtdp_msecs();
	} while (now_msecs < end ||
		 (!(all_calls_worked() && leaves_changed_size()) &&
		  now_msecs < end + PATIENCE * seconds * 1000ull));

	gtdp_host_state(&now);
	ksft_print_msg("%u campaigns, free memory %ld KiB\n", stream,
		       (now.free_bytes - before.free_bytes) / SZ_1K);
	fuzz_print_counts();
	gtdp_assert_log_silent(log_fd);
	close(log_fd);

	TEST_ASSERT(all_calls_worked(), "a call never worked");
	/* A host that is slow gets to little of what is rare. */
	TEST_ASSERT(fuzz->counts[FUZZ_BUILD][0] < ENOUGH_BUILDS || leaves_changed_size(),
		    "large leaves seen %lu times, split %lu, collapsed %lu", fuzz->large_leaves,
		    fuzz->splits, fuzz->collapses);
	return NULL;
}

static const struct gtdp_case cases[] = {
	{ "fuzz", test_fuzz },
};

int main(int argc, char *argv[])
{
	return gtdp_main(argc, argv, cases, ARRAY_SIZE(cases));
}
