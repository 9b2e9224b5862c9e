// Why a workload waits, on the page: numbers, causes, what its owner can change, and nothing of others that is not theirs to list.
import { expect, signIn, test } from './berth.ts';

const SLEEP = ['-i', 'bash', '--', 'bash', '-c', 'sleep infinity'];

test('a wait is shown in numbers, with the change that would start it', async ({ berth, signedIn: page }) => {
  await berth.run('submit', 'half', '-p', 'team-a', '-g', '5', ...SLEEP);
  await berth.run('submit', 'other', '-p', 'team-b', '-g', '5', ...SLEEP);
  await berth.run('wait', 'half', '-p', 'team-a', '--for', 'running');
  await berth.run('wait', 'other', '-p', 'team-b', '--for', 'running');
  await berth.run('submit', 'waits', '-p', 'team-b', '-g', '4', ...SLEEP);
  await page.getByRole('link', { name: 'waits', exact: true }).first().click();
  const drawer = page.getByRole('complementary', { name: 'Workload waits' });
  const why = drawer.getByRole('region', { name: 'Why it waits' });
  await expect(why).toContainText('Waiting for 4 GPUs; 6 free. At most 3 GPUs are free on one node.');
  await expect(why).toContainText('6 of 16 GPUs on 2 nodes it may use');
  await expect(why).toContainText('5 of quota 2 used');
  await expect(why).toContainText('1 of 1 in its project');
  await expect(why.getByRole('listitem').filter({ hasText: 'would start now' }).first()).toContainText(
    '--workers 2 -g 2 would start now.',
  );
  await expect(why.getByRole('link', { name: 'team-a/half' })).toBeVisible();
  await expect(why).not.toContainText(/fits|needed/i);
});

test('a researcher is shown projects instead of workloads that are not theirs to list', async ({
  berth,
  page,
}) => {
  await berth.up('--project', 'team-a=4', '--project', 'team-b=2');
  for (const name of ['secret-1', 'secret-2']) {
    await berth.run('submit', name, '-p', 'team-a', '-g', '8', ...SLEEP);
    await berth.run('wait', name, '-p', 'team-a', '--for', 'running');
  }
  const token = await berth.join('bob', 'researcher', 'project/team-b');
  await berth.run('submit', 'mine', '-p', 'team-b', '-g', '8', ...SLEEP);
  await signIn(page, berth.address, token);
  await page.getByRole('link', { name: 'mine', exact: true }).first().click();
  const why = page.getByRole('region', { name: 'Why it waits' });
  await expect(why).toContainText('2 workloads of team-a 16 GPUs');
  await expect(why).not.toContainText('secret');
  await expect(why).toContainText('-g 2 would start now, after a workload of team-a stopped for it.');
});
