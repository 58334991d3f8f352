// Runs a program of dmlc on a Vulkan device, from C#: see docs/how-to/vulkan-hosts.md.

using System;
using System.Linq;
using Dmlc;
using ReluGrad = Dmlc.Programs.ACTIVATION_RELU_GRAD;

public static class Example
{
    private static byte[] ToBytes(params float[] values)
    {
        return values.SelectMany(BitConverter.GetBytes).ToArray();
    }

    public static void Main()
    {
        using (var host = new Host())
        using (var pipelines = host.Load(ReluGrad.Kernels, "."))
        {
            var program = ReluGrad.At(new ReluGrad.Sizes { n = 4 });
            var input = ToBytes(-1, 0, 2, 3);
            var gradient = ToBytes(5, 6, 7, 8);
            byte[][] outputs = host.Run(program, pipelines, input, gradient);
            for (int place = 0; place < outputs[0].Length; place += 4)
            {
                Console.Write(BitConverter.ToSingle(outputs[0], place) + " ");
            }
            Console.WriteLine("on " + host.Name);
        }
    }
}
