// The same pages in front of a cluster: a real control plane with two simulated DGX-1.
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { BERTH, expect, signIn, test } from './berth.ts';

const CLUSTER = process.env.BERTH_CLUSTER_BIN ?? join(dirname(BERTH), 'examples/cluster');

interface Told {
  address: string;
  token: string;
  missing?: string;
}

async function start(): Promise<[ChildProcess, Told]> {
  const process = spawn(CLUSTER, { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: process.stdout! });
  for await (const line of lines) return [process, JSON.parse(line) as Told];
  throw new Error('the cluster ended before it said where it is');
}

async function end(process: ChildProcess) {
  const ended = new Promise(resolve => process.once('exit', resolve));
  process.stdin?.end();
  if (process.exitCode === null) await ended;
}

test('the same pages show Berth on Kubernetes', async ({ page }) => {
  test.setTimeout(300_000);
  if (!existsSync(CLUSTER)) {
    console.log(`NOT TESTED: the dashboard on Kubernetes, because ${CLUSTER} is not built`);
    test.skip();
  }
  const [process, told] = await start();
  try {
    if (told.missing !== undefined) {
      console.log(`NOT TESTED: the dashboard on Kubernetes: ${told.missing}`);
      test.skip();
    }
    await signIn(page, told.address, told.token);
    await expect(page.getByRole('link', { name: /^GPUs 16/ })).toBeVisible();
    await expect(page.getByRole('link', { name: /^Nodes 2 \/ 2/ })).toBeVisible();

    await page.getByRole('link', { name: 'Projects', exact: true }).click();
    for (const [team, quota] of [
      ['team-a', 8],
      ['team-b', 8],
    ] as const) {
      await page.getByRole('button', { name: 'New project' }).click();
      await page.getByRole('dialog').getByLabel('Name').fill(team);
      await page.getByRole('dialog').getByLabel('Quota', { exact: true }).fill(String(quota));
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await expect(page.getByRole('dialog')).toBeHidden();
    }
    await expect(page.getByText('16 of 16 GPUs promised')).toBeVisible();

    await page.getByRole('link', { name: 'Workloads', exact: true }).click();
    const submit = async (team: string, name: string, gpus: number) => {
      await page.getByRole('button', { name: 'Submit', exact: true }).click();
      const form = page.getByRole('dialog');
      await form.getByLabel('Name', { exact: true }).fill(name);
      await form.getByLabel('Project', { exact: true }).selectOption(team);
      await form.getByLabel('GPUs of each worker').fill(String(gpus));
      await form.getByRole('button', { name: 'Submit', exact: true }).click();
      const drawer = page.getByRole('complementary', { name: `Workload ${name}` });
      await drawer.getByRole('button', { name: 'Close' }).click();
    };
    await submit('team-a', 'own', 8);
    await submit('team-a', 'borrows', 8);
    for (const name of ['own', 'borrows'])
      await expect(page.getByRole('row', { name: new RegExp(`^${name} `) })).toContainText('Running');

    // The owner comes back, and the page sees the preemption happen.
    await submit('team-b', 'owner', 8);
    await expect(page.getByRole('row', { name: /^owner / })).toContainText('Running', { timeout: 60_000 });
    await page.getByRole('link', { name: 'Overview', exact: true }).click();
    await expect(page.getByRole('img', { name: 'team-a: 8 of 8 GPUs' })).toBeVisible();
    await expect(page.getByRole('img', { name: 'team-b: 8 of 8 GPUs' })).toBeVisible();
    const pending = page.getByRole('region', { name: 'Pending workloads' }).getByRole('row').nth(1);
    const name = (await pending.getByRole('link').first().textContent()) ?? '';
    await page
      .getByRole('region', { name: 'Pending workloads' })
      .getByRole('link', { name, exact: true })
      .click();
    const drawer = page.getByRole('complementary', { name: `Workload ${name}` });
    await expect(drawer.getByRole('region', { name: 'Why it waits' })).toContainText('no-capacity');
    await drawer.getByRole('tab', { name: 'Events' }).click();
    await expect(drawer).toContainText('owner');
    await page.keyboard.press('Escape');
    await expect(drawer).toBeHidden();

    await page.getByRole('link', { name: 'Nodes', exact: true }).click();
    await expect(page.getByRole('article')).toHaveCount(2);
    await expect(page.getByRole('link', { name: 'owner' }).first()).toBeVisible();

    await page
      .getByRole('navigation')
      .getByRole('link', { name: /^Workloads/ })
      .click();
    await page.getByRole('link', { name: 'owner', exact: true }).click();
    const owner = page.getByRole('complementary', { name: 'Workload owner' });
    // A simulated node runs nothing: it prints nothing, and nobody can enter.
    await owner.getByRole('tab', { name: 'Logs' }).click();
    await expect(owner.getByText('Nothing printed yet')).toBeVisible();
    await owner.getByRole('tab', { name: 'Terminal' }).click();
    await expect(owner.getByRole('status')).toContainText('as a simulated node never does');
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await expect(page.getByRole('dialog')).toBeHidden();
    await page.getByRole('complementary').getByRole('button', { name: 'Close' }).click();
    await expect(page.getByRole('row', { name: new RegExp(`^${name} `) })).toContainText('Running', {
      timeout: 60_000,
    });
    await page.getByRole('link', { name: 'Settings', exact: true }).click();
    await expect(page.getByText('on Kubernetes')).toBeVisible();
  } finally {
    await end(process);
  }
});
