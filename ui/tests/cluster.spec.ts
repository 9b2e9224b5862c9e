// The same pages in front of a real Kubernetes API server with two simulated DGX-1.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { BERTH, cache, expect, test } from './berth.ts';

const BINARIES = ['berth-testbed', 'berth-operator', 'berth-gate'].map(name => join(dirname(BERTH), name));

/** Where the control plane's programs are, as `.ci/ensure kube` leaves them. */
function kubectl(): string | null {
  const tools = process.env.BERTH_KUBE_BIN ? [process.env.BERTH_KUBE_BIN] : [];
  const folder = join(cache, 'tools');
  for (const name of existsSync(folder) ? readdirSync(folder) : []) {
    if (name.startsWith('kubernetes-')) tools.push(join(folder, name, 'bin'));
  }
  const found = tools.map(folder => join(folder, 'kubectl')).find(existsSync);
  return found ?? ['/usr/local/bin/kubectl', '/usr/bin/kubectl'].find(existsSync) ?? null;
}

class OnKubernetes {
  readonly folder = mkdtempSync(join(tmpdir(), 'berth-ui-kube-'));
  private readonly started: ChildProcess[] = [];
  private readonly testbed = BINARIES[0]!;
  link = '';

  async up(kubectl: string) {
    const kube = join(this.folder, 'kube');
    const said = execFileSync(this.testbed, ['up', '--folder', kube, '--nodes', '2xdgx1', '--dra'], {
      encoding: 'utf8',
    });
    const config = /KUBECONFIG=(\S+)/.exec(said)![1]!;
    const apply = (...words: string[]) =>
      execFileSync(kubectl, ['--kubeconfig', config, ...words], { stdio: 'pipe' });
    apply('apply', '--server-side', '-f', join(import.meta.dirname, '../../deploy/crds'));
    apply('create', 'namespace', 'berth-system');
    apply('wait', '--for=condition=established', 'crd', '--all', '--timeout=60s');
    this.run(BINARIES[1]!, '--kubeconfig', config);
    const gate = this.run(
      BINARIES[2]!,
      '--kubeconfig',
      config,
      '--folder',
      join(this.folder, 'home'),
      '--listen',
      '127.0.0.1:0',
    );
    await new Promise<void>((resolve, reject) => {
      gate.stdout!.on('data', data => String(data).includes('berth answers at') && resolve());
      gate.on('exit', code => reject(new Error(`berth-gate ended with ${code}`)));
    });
    this.link = this.berth('dashboard').trim();
  }

  berth(...words: string[]) {
    const env = { ...process.env, BERTH_HOME: join(this.folder, 'home') };
    return execFileSync(BERTH, words, { env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  }

  private run(program: string, ...words: string[]) {
    const child = spawn(program, words, { stdio: ['ignore', 'pipe', 'ignore'] });
    this.started.push(child);
    return child;
  }

  async remove() {
    for (const child of this.started.reverse()) {
      if (child.exitCode !== null) continue;
      const exit = once(child, 'exit');
      child.kill('SIGTERM');
      await exit;
    }
    execFileSync(this.testbed, ['down', '--folder', join(this.folder, 'kube')], { stdio: 'ignore' });
    rmSync(this.folder, { recursive: true, force: true });
  }
}

test('in front of a cluster the same pages show a preemption as it happens', async ({ page }) => {
  const tool = kubectl();
  const missing = BINARIES.filter(binary => !existsSync(binary));
  test.skip(
    tool === null || missing.length > 0,
    `NOT TESTED on Kubernetes: ${missing.join(', ') || 'kubectl'} is missing`,
  );
  test.setTimeout(240_000);
  const cluster = new OnKubernetes();
  try {
    await cluster.up(tool!);
    await page.goto(cluster.link);
    await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
    cluster.berth('project', 'create', 'owner', '--quota', '12');
    cluster.berth('project', 'create', 'borrower', '--quota', '4');
    const shares = page.locator('section', { has: page.getByRole('heading', { name: 'GPUs by project' }) });
    await expect(shares.getByRole('img', { name: 'owner: 0 of 12 GPUs' })).toBeVisible();

    await page.getByRole('link', { name: 'Workloads', exact: true }).click();
    for (const name of ['first', 'second']) {
      await page.getByRole('button', { name: 'Submit', exact: true }).click();
      const form = page.getByRole('dialog');
      await form.getByLabel('Name').fill(name);
      await form.getByLabel('Project').selectOption('borrower');
      await form.getByLabel('Image').fill('example/train:1');
      await form.getByLabel('GPUs of each worker').fill('8');
      await form.getByRole('button', { name: 'Submit', exact: true }).click();
      await expect(form).toBeHidden();
      const drawer = page.getByRole('complementary', { name: `Workload ${name}` });
      await expect(drawer).toContainText('Running');
      await drawer.getByRole('button', { name: 'Close' }).click();
    }
    await page.getByRole('link', { name: 'Overview', exact: true }).click();
    await expect(shares.getByRole('img', { name: 'borrower: 16 of 4 GPUs, 12 borrowed' })).toBeVisible();

    cluster.berth('submit', 'mine', '-p', 'owner', '-g', '8', '-i', 'example/train:1');
    await expect(shares.getByRole('img', { name: 'owner: 8 of 12 GPUs' })).toBeVisible();
    await expect(shares.getByRole('img', { name: 'borrower: 8 of 4 GPUs, 4 borrowed' })).toBeVisible();
    const pending = page.getByRole('region', { name: 'Pending workloads' });
    await expect(pending.getByRole('row').filter({ hasText: 'borrower' })).toContainText('above quota');
    await page.getByRole('link', { name: 'Nodes', exact: true }).click();
    await expect(page.getByRole('article')).toHaveCount(2);
    await expect(page.getByRole('link', { name: 'mine' }).first()).toBeVisible();
  } finally {
    await cluster.remove();
  }
});
