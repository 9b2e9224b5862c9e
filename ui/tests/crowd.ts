// A server with more nodes and work than anybody looks at. Its nodes are declared; of the work, one in ten runs, each on all GPUs of
// a node as a process that sleeps, and the rest waits because its team is at its limit.
import { mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { Workload } from '../src/api/types.ts';
import { Berth, expect } from './berth.ts';

export const NODES = 1_000;
export const TEAMS = 40;
const GPUS = 8;
/** It has to stand within this time; whoever waits for it waits a little longer, and ends what was started. */
export const START_MAX_MS = 600_000;
/** Requests that are under way at once: the server shares a sync of the disk among them. */
const AT_ONCE = 64;

export class Crowd extends Berth {
  override readonly nodes = `${NODES}xdgx1`;
  readonly running: number;

  constructor(readonly workloads: number) {
    super();
    this.running = workloads / 10;
  }

  private get notes() {
    return join(this.folder, 'notes');
  }

  team(number: number) {
    return `team-${number % TEAMS}`;
  }

  /** Whether it keeps its GPUs for as long as the crowd is there, and so can report at any time. */
  stays(number: number) {
    return number > TEAMS && number <= this.running;
  }

  async begin() {
    mkdirSync(this.notes);
    await this.up('--tasks-run-as', 'server');
    const quota = (this.running / TEAMS) * GPUS;
    for (let team = 0; team < TEAMS; team += 1)
      await this.call('POST', '/projects', { name: `team-${team}`, quota, limit: quota });
    // Each notes with which token it may report; the test reports for it.
    const words = ['bash', '-c', 'echo $BERTH_REPORT_TOKEN > "$0/$BERTH_WORKLOAD"; exec sleep infinity'];
    const submit = (number: number) =>
      this.call('POST', '/workloads', {
        name: `train-${number}`,
        project: this.team(number),
        image: 'bash',
        command: [...words, this.notes],
        gpus: GPUS,
      });
    await inParallel(1, this.running, submit);
    await inParallel(this.running + 1, this.workloads, submit);
    const count = async () => (await this.call<{ running_count: number }>('GET', '/cluster')).running_count;
    await expect.poll(count, { timeout: 120_000 }).toBe(this.running);
    const noted = () =>
      readdirSync(this.notes).filter(name => statSync(join(this.notes, name)).size > 0).length;
    await expect.poll(noted, { timeout: 120_000 }).toBe(this.running);
  }

  /**
   * A running workload reports its progress. One report in ten seconds is streamed, the others are shown later. It reports no
   * utilisation: that is unknown again after a minute, which would change its row in the middle of another test.
   */
  async progress(number: number, percent: number) {
    const token = readFileSync(join(this.notes, `train-${number}`), 'utf8').trim();
    await this.call('POST', '/report', { percent, loss: 0.5 }, token);
  }

  /** Of each team one is on GPUs that may change hands: it is suspended, the next of its team starts, and it waits again. */
  async swap(team: number): Promise<{ left: Workload; came: Workload }> {
    const [left] = await this.movable(team);
    const path = `/workloads/team-${team}/${left!.name}`;
    await this.call('POST', `${path}/suspend`);
    let came: Workload | undefined;
    const arrived = async () => {
      came = (await this.movable(team))[0];
      return came !== undefined && came.id !== left!.id;
    };
    await expect.poll(arrived).toBe(true);
    await this.call('POST', `${path}/resume`);
    return { left: left!, came: came! };
  }

  private async movable(team: number): Promise<Workload[]> {
    const path = `/workloads?project=team-${team}&finished=false&limit=1000`;
    const { items } = await this.call<{ items: Workload[] }>('GET', path);
    return items.filter(({ name, status }) => status === 'Running' && !this.stays(numberOf(name)));
  }
}

/** The number in the name of a workload, by which it was submitted; the server counts for itself. */
export function numberOf(name: string) {
  return Number(name.replace('train-', ''));
}

async function inParallel(first: number, last: number, work: (number: number) => Promise<unknown>) {
  const deadline = Date.now() + START_MAX_MS / 2;
  let next = first;
  const hand = async () => {
    while (next <= last) {
      if (Date.now() > deadline) throw new Error(`only ${next} were submitted in time`);
      const own = next;
      next += 1;
      await work(own);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, hand));
}
